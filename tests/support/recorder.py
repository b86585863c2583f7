"""What stands for engines whose servers a test does without."""

from germline.backends import Serial
from germline.run import engines


class Recorder:
    """Stands for the modules of engines elsewhere: keeps what is made, which works here."""

    def __init__(self, monkeypatch):
        self.made = []
        monkeypatch.setattr(engines, "module_of", lambda scheme: self)

    def __getattr__(self, kind):
        def make(place, **settings):
            self.made.append((kind, place, settings))
            return Serial()

        return make
