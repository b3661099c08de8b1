from django.apps import AppConfig


class AuditConfig(AppConfig):
    name = "console.audit"
    label = "audit"

    def ready(self) -> None:
        from console.audit.services import record_event
        from skills.ports import on_event

        if record_event not in on_event:
            on_event.append(record_event)
