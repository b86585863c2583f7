import pytest

from germline import files, policies
from germline.decode import Decoder
from germline.run import recall
from germline.run.store import Store
from runs import ALGORITHMS, LONG


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_any_individual_that_ever_lived_can_be_recalled(algorithm, finished, tmp_path):
    folder = finished(algorithm)
    with Store.open(folder) as store:
        names = {name for g in range(LONG) for name in store.evaluated(g, 0).values()}
        layout = policies.layout_of(store.policy)
    for name in sorted(names):
        found = recall.recall(folder, name, trust=True)
        assert found.genome.id == name
        files.write(tmp_path / name, found)
        again = files.read(tmp_path / name)
        Decoder(layout, again.snapshots()).decode(again.genome)
