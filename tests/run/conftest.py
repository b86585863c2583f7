import pytest

from runs import LONG, run, small


@pytest.fixture(scope="session")
def finished(tmp_path_factory):
    """Runs of some generations by name of their algorithm, made once; not to be changed."""
    made = {}

    def get(algorithm="ga"):
        if algorithm not in made:
            made[algorithm] = tmp_path_factory.mktemp("finished") / algorithm
            run(made[algorithm], small({"stop.generations": LONG}, algorithm))
        return made[algorithm]

    return get
