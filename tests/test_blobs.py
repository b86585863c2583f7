import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from germline import blobs, disk
from germline.blobs import BlobFolder
from germline.errors import InputError
from samples import bits

finite = st.lists(st.floats(width=32, allow_nan=False, allow_infinity=False), max_size=30)


@given(finite)
def test_pack_then_unpack(values):
    theta = np.array(values, np.float32)
    blob = blobs.pack(theta)
    back = blobs.unpack(blob, blobs.sha256(blob), len(values))
    normal = np.abs(theta) >= 2.0**-126
    assert (bits(back)[normal] == bits(theta)[normal]).all()
    assert (bits(back)[~normal] == 0).all()
    assert blobs.pack(back) == blob


def test_subnormals_and_negative_zero_become_zero():
    traps = np.array([-0.0, 1e-45, -1e-40, 2.0**-126, -(2.0**-126), 3.0], np.float32)
    back = np.frombuffer(blobs.pack(traps), np.float32)
    assert bits(back).tolist() == bits([0, 0, 0, 2.0**-126, -(2.0**-126), 3]).tolist()


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_what_is_not_finite_is_refused(bad):
    theta = np.array([1, bad, 2], np.float32)
    with pytest.raises(InputError, match="weights: number 1 is"):
        blobs.pack(theta)
    raw = theta.tobytes()
    with pytest.raises(InputError, match="NaN or infinity"):
        blobs.unpack(raw, blobs.sha256(raw), 3)


@pytest.mark.parametrize("trap", [-0.0, 1e-45, -1e-40])
def test_a_blob_with_a_trap_is_refused_even_if_its_hash_is_right(trap):
    raw = np.array([1, trap], np.float32).tobytes()
    with pytest.raises(InputError, match="subnormals or -0"):
        blobs.unpack(raw, blobs.sha256(raw), 2)


def test_a_folder_keeps_blobs_by_their_hash(tmp_path):
    folder = BlobFolder(tmp_path / "blobs")
    name = folder.put(b"abcd")
    assert folder.put(b"abcd") == name == blobs.sha256(b"abcd")
    assert folder[name] == b"abcd"
    assert [path.name for path in folder.folder.iterdir()] == [name]
    with pytest.raises(KeyError):
        folder["0" * 64]


def test_a_failed_write_leaves_the_old_file_and_no_draft(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"old")
    with pytest.raises(TypeError):
        disk.write_atomically(path, "not bytes")
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]
