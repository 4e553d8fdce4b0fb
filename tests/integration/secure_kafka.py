"""A Kafka broker with a plain listener and one that requires TLS and SCRAM."""

from __future__ import annotations

from pathlib import Path

from infra.local_services.kafka import KafkaBroker
from infra.local_services.process import free_ports
from tests.certificates import certificate

USER, PASSWORD = "jobs", "half 'quoted' = secret"


class SecureKafka(KafkaBroker):
    """One broker; clients of the listener `servers` need the settings of `properties`."""

    def __init__(self, folder: Path) -> None:
        """Create a certificate; nothing is started yet."""
        super().__init__(folder)
        folder.mkdir(parents=True, exist_ok=True)
        (port,) = free_ports(1)
        self.servers = f"127.0.0.1:{port}"
        self.authority, self._keystore = folder / "ca.crt", folder / "server.pem"
        issued_certificate = certificate("kafka")
        self.authority.write_bytes(issued_certificate.authority)
        self._keystore.touch(mode=0o600)
        self._keystore.write_bytes(issued_certificate.private + issued_certificate.public)

    def properties(self, file: Path, *, password: str = PASSWORD) -> Path:
        """Write a client's settings to a file; return it."""
        file.write_text(
            "# as a Secret is mounted\n"
            "security.protocol=sasl_ssl\n"
            "sasl.mechanism=SCRAM-SHA-512\n"
            f"sasl.username={USER}\n"
            f"sasl.password={password}\n"
            f"ssl.ca.location={self.authority}\n",
            encoding="utf-8",
        )
        return file

    def _more_settings(self) -> str:
        plain, controller = self.endpoint.bootstrap, f"127.0.0.1:{self._controller_port}"
        listeners = f"PLAINTEXT://{plain},SECURE://{self.servers}"
        scram = "org.apache.kafka.common.security.scram.ScramLoginModule required;"
        return (
            f"listeners={listeners},CONTROLLER://{controller}\n"
            f"advertised.listeners={listeners}\n"
            "listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,SECURE:SASL_SSL\n"
            "listener.name.secure.sasl.enabled.mechanisms=SCRAM-SHA-512\n"
            f"listener.name.secure.scram-sha-512.sasl.jaas.config={scram}\n"
            "listener.name.secure.ssl.keystore.type=PEM\n"
            f"listener.name.secure.ssl.keystore.location={self._keystore}\n"
        )

    def _format_options(self) -> list[str]:
        return ["--add-scram", f'SCRAM-SHA-512=[name="{USER}",password="{PASSWORD}"]']
