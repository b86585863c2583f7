from commands import ok
from germline.api import Run
from runs import CARTPOLE, write


def test_the_form_without_generations_is_chosen_by_an_option(tmp_path, monkeypatch, germline):
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "spec.toml", CARTPOLE)
    ok(germline("train", "spec.toml", "--async", "-q", "--out", "run"))
    run = Run("run")
    assert run.spec.algorithm["name"] == "async-ga"
    assert run.spec.algorithm["population"] == 6
    assert run.totals.generations == 1
