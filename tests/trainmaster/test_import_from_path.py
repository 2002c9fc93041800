"""Code of a checkpoint is imported beside code of the same names."""

import sys
from pathlib import Path

import pytest

import trainmaster as det


def test_two_modules_of_one_name_live_side_by_side(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for version in ("new", "old"):
        folder = tmp_path / version
        (folder / "parts_of_it").mkdir(parents=True)
        (folder / "model_of_it.py").write_text(f"from parts_of_it.layer import NAME\nVERSION = '{version}'\n")
        (folder / "parts_of_it" / "layer.py").write_text(f"NAME = '{version} layer'\n")
    monkeypatch.syspath_prepend(str(tmp_path / "new"))
    import model_of_it as now  # type: ignore[import-not-found]

    path = [*sys.path]
    with det.import_from_path(tmp_path / "old"):
        import model_of_it as then
    import model_of_it as again

    assert again is now and sys.path == path
    assert (now.VERSION, now.NAME) == ("new", "new layer")
    assert (then.VERSION, then.NAME) == ("old", "old layer")
    assert not [*(tmp_path / "old").rglob("__pycache__")]
    with pytest.raises(NotADirectoryError), det.import_from_path(tmp_path / "nothing"):
        pass
    for name in ("model_of_it", "parts_of_it", "parts_of_it.layer"):
        monkeypatch.delitem(sys.modules, name)
