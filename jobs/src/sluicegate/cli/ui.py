"""`sluicegate ui`: serves the console, pages that say what every job is doing and why."""

from __future__ import annotations

import contextlib
import ipaddress
import socket
from collections.abc import Sequence
from pathlib import Path

import click

from sluicegate.deployment.api_server import ApiServer
from sluicegate.errors import SettingsInvalid

_SECRET_CHARACTERS = 16


@click.command()
@click.argument("addresses", nargs=-1, metavar="[ADDRESS]...")
@click.option(
    "--host",
    default="127.0.0.1",
    help="Address to listen on. Anyone who reaches it can read the pages: there is no login.",
)
@click.option(
    "--port",
    default=8321,
    type=click.IntRange(0, 65_535),
    help="Port to listen on; 0: any free one.",
)
@click.option(
    "--refresh-s",
    default=3.0,
    type=click.FloatRange(min=0.5),
    help="How often what an open page shows is read again, in seconds.",
)
@click.option(
    "--trace-url",
    default="",
    callback=lambda _context, _option, url: _checked_trace_url(url),
    help="Address of a trace in Jaeger, Tempo or another store, with {trace_id} in the place of its id, "
    "such as http://localhost:16686/trace/{trace_id}. Each traced epoch then links to it.",
)
@click.option(
    "--kafka",
    default="",
    help="Kafka bootstrap servers, from which samples of dead letters are read when somebody asks for "
    "them: rows of your data. Without it, pages contain none. The login is that of jobs.",
)
@click.option(
    "--price-core-hour",
    default=0.0,
    type=click.FloatRange(min=0),
    help="Price of a requested core for an hour. With a price, pages show what jobs cost.",
)
@click.option(
    "--price-gib-hour",
    default=0.0,
    type=click.FloatRange(min=0),
    help="Price of a requested GiB of memory for an hour.",
)
@click.option("--currency", default="USD", help="Currency of the prices.")
@click.option(
    "--actions",
    is_flag=True,
    help="Let people who are logged in at a proxy suspend, resume, restart and save StreamingJobs, with "
    "their own rights in Kubernetes. Needs a pod whose service account may impersonate them, and "
    "--proxy-secret-file.",
)
@click.option(
    "--proxy-secret-file",
    default="",
    help="File with a secret of at least 16 characters that the login proxy sends in the header "
    "X-Sluicegate-Proxy. Without it, anyone who reaches the port could claim to be anyone.",
)
@click.option(
    "--user-header",
    default="X-Forwarded-User",
    help="Header in which the login proxy names the user.",
)
@click.option(
    "--groups-header",
    default="X-Forwarded-Groups",
    help="Header in which the login proxy names the user's groups, separated by commas.",
)
@click.option(
    "--group",
    "groups",
    multiple=True,
    help="A group that counts for actions; may be repeated. Other groups of a user are ignored.",
)
def ui(  # noqa: PLR0913 - an option each
    addresses: tuple[str, ...],
    *,
    host: str,
    port: int,
    refresh_s: float,
    trace_url: str,
    kafka: str,
    price_core_hour: float,
    price_gib_hour: float,
    currency: str,
    proxy_secret_file: str,
    user_header: str,
    groups_header: str,
    groups: tuple[str, ...],
    actions: bool,
) -> None:
    """Serve the console: what every job is doing and why, read from checkpoints alone.

    ADDRESS is a checkpoint, or a folder or s3:// prefix with checkpoints and savepoints below it; the
    default is `checkpoints`. The console writes nothing, except for what --actions allows. It needs
    `sluicegate[ui]`.
    """
    try:
        import uvicorn  # noqa: PLC0415 - an extra

        from sluicegate.console.app import (  # noqa: PLC0415 - an extra
            LOCAL_NAMES,
            Access,
            create_app,
        )
        from sluicegate.console.cluster import StreamingJobs  # noqa: PLC0415 - goes with the extra
        from sluicegate.console.cost import Prices  # noqa: PLC0415 - goes with the extra
        from sluicegate.console.identity import LoginProxy  # noqa: PLC0415 - goes with the extra
        from sluicegate.console.reader import Reader  # noqa: PLC0415 - goes with the extra
    except ModuleNotFoundError as error:
        raise SettingsInvalid(
            f"the console needs the Python package {error.name}, which is not installed",
            data="nothing was read or written",
            do="install the library's wheel with its extra `ui`",
        ) from error
    access = None
    if actions:
        secret, api = _proxy_secret(proxy_secret_file), _api_server(groups)
        proxy = LoginProxy(secret, user_header, groups_header, groups)
        access = Access(proxy, StreamingJobs(api))
    hosts = LOCAL_NAMES if _is_local(host) else ("*",)
    if hosts == ("*",):
        click.echo(f"anyone who reaches {host} can read the console: it has no login", err=True)
    reader = Reader(addresses or ("checkpoints",))
    try:
        with _listen(host, port) as listener:
            app = create_app(
                reader,
                hosts=hosts,
                refresh_s=refresh_s,
                trace_url=trace_url,
                kafka=kafka,
                prices=Prices(price_core_hour, price_gib_hour, currency),
                access=access,
            )
            config = uvicorn.Config(
                app,
                log_config=None,
                log_level="warning",
                access_log=False,
                server_header=False,
                timeout_graceful_shutdown=1,  # the events of an open page never end
            )
            shown = f"[{host}]" if ":" in host else host
            click.echo(f"http://{shown}:{listener.getsockname()[1]}/  (Ctrl-C ends it)")
            with contextlib.suppress(KeyboardInterrupt):  # which ends it, as it says
                uvicorn.Server(config).run(sockets=[listener])
    finally:
        reader.close()


def _checked_trace_url(url: str) -> str:
    if url and not (url.startswith(("http://", "https://")) and "{trace_id}" in url):
        raise click.BadParameter("it is no http address with {trace_id} in it")
    return url


def _proxy_secret(file: str) -> str:
    try:
        secret = Path(file).read_text(encoding="utf-8").strip() if file else ""
    except (OSError, ValueError) as error:
        raise _actions_impossible(f"--proxy-secret-file cannot be read: {error}") from error
    if len(secret) < _SECRET_CHARACTERS:
        raise _actions_impossible(
            "--proxy-secret-file names no file with a secret of at least 16 characters"
        )
    return secret


def _api_server(groups: Sequence[str]) -> ApiServer:
    own = [group for group in groups if group.startswith("system:")]
    if own:
        raise _actions_impossible(f"--group names {own[0]}, a group of Kubernetes itself")
    api = ApiServer.of_pod("sluicegate-console")
    if api is None:
        raise _actions_impossible("the console runs in no pod, so it has no service account")
    return api


def _actions_impossible(what: str) -> SettingsInvalid:
    return SettingsInvalid(
        f"no actions can be offered: {what}",
        data="nothing was read or written",
        do="see docs/guides/console.md, or leave out --actions: the pages then show commands",
    )


def _listen(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family)
    except OSError as error:
        raise SettingsInvalid(
            f"the console cannot listen on {host}, port {port}: {error.strerror}",
            data="nothing was read or written",
            do="choose another --port, or 0 for any free one",
        ) from error


def _is_local(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
