from django.apps import AppConfig


class AuditConfig(AppConfig):
    name = "console.audit"
    label = "audit"

    def ready(self) -> None:
        from console.audit.services import record_event
        from skills import ports

        ports.on_event.append(record_event)
