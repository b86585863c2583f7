"""What stands for engines whose servers a test does without."""

from functools import partial

from germline.backends import Serial

KINDS = {"grpc": "Grpc", "celery": "Celery", "ray": "Ray"}


class Recorder:
    """Stands for the engines of other machines: keeps what is made, which works here."""

    def __init__(self, monkeypatch):
        self.made = []
        for module, kind in KINDS.items():
            monkeypatch.setattr(f"germline.backends.{module}.{kind}", partial(self._make, kind))

    def _make(self, kind, place, **settings):
        self.made.append((kind, place, settings))
        return Serial()
