// pause is the first process of every pod: it keeps the pod's namespaces alive, and as process 1 it
// collects the processes that others leave behind.
package main

import (
	"os"
	"os/signal"
	"syscall"
)

func main() {
	told := make(chan os.Signal, 8)
	signal.Notify(told, syscall.SIGCHLD, syscall.SIGINT, syscall.SIGTERM)
	for {
		if <-told != syscall.SIGCHLD {
			return
		}
		// several children may stand behind one signal
		for {
			pid, err := syscall.Wait4(-1, nil, syscall.WNOHANG, nil)
			if err == syscall.EINTR {
				continue
			}
			if pid <= 0 {
				break
			}
		}
	}
}
