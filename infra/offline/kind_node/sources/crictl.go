// crictl stands in for the tool of that name, whose module is not published: `inspecti`, which kind
// calls, `images` and `ps` for people. It is built inside Kubernetes' module, for its pins.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"time"

	services "k8s.io/cri-api/pkg/apis"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
	client "k8s.io/cri-client/pkg"
)

const (
	endpoint = "unix:///run/containerd/containerd.sock"
	patience = 30 * time.Second
	usage    = "usage: crictl images [--output json] | inspecti IMAGE | ps"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "crictl:", err)
		os.Exit(1)
	}
}

func run(arguments []string) error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	switch {
	case len(arguments) >= 1 && arguments[0] == "images":
		return onImages(ctx, images)
	case len(arguments) >= 2 && arguments[0] == "inspecti":
		return onImages(ctx, func(ctx context.Context, service services.ImageManagerService) error {
			return inspect(ctx, service, arguments[len(arguments)-1])
		})
	case len(arguments) == 1 && arguments[0] == "ps":
		return containers(ctx)
	}
	return fmt.Errorf("%s", usage)
}

func onImages(ctx context.Context, do func(context.Context, services.ImageManagerService) error) error {
	service, err := client.NewRemoteImageServiceBuilder().WithEndpoint(endpoint).WithConnectionTimeout(patience).Build(ctx)
	if err != nil {
		return err
	}
	defer service.Close(ctx)
	return do(ctx, service)
}

// images prints all images in the fields of the interface, always as JSON.
func images(ctx context.Context, service services.ImageManagerService) error {
	found, err := service.ListImages(ctx, nil)
	if err != nil {
		return err
	}
	listed := []map[string]any{}
	for _, image := range found {
		listed = append(listed, described(image))
	}
	return json.NewEncoder(os.Stdout).Encode(map[string]any{"images": listed})
}

func described(image *cri.Image) map[string]any {
	return map[string]any{
		"id":          image.Id,
		"repoTags":    image.RepoTags,
		"repoDigests": image.RepoDigests,
		"size":        fmt.Sprint(image.Size),
	}
}

// inspect prints an image as kind reads it: status.id.
func inspect(ctx context.Context, service services.ImageManagerService, name string) error {
	found, err := service.ImageStatus(ctx, &cri.ImageSpec{Image: name}, false)
	if err != nil {
		return err
	}
	if found.Image == nil {
		return fmt.Errorf("no such image %q present", name)
	}
	return json.NewEncoder(os.Stdout).Encode(map[string]any{"status": described(found.Image)})
}

// containers prints a line for each container: its id, state, pod and name.
func containers(ctx context.Context) error {
	service, err := client.NewRemoteRuntimeServiceBuilder().WithEndpoint(endpoint).WithConnectionTimeout(patience).Build(ctx)
	if err != nil {
		return err
	}
	defer service.Close(ctx)
	found, err := service.ListContainers(ctx, nil)
	if err != nil {
		return err
	}
	for _, one := range found {
		pod := one.Labels["io.kubernetes.pod.namespace"] + "/" + one.Labels["io.kubernetes.pod.name"]
		fmt.Println(one.Id[:13], one.State, pod, one.Metadata.Name)
	}
	return nil
}
