import pytest

from noisewise.core.errors import NoisewiseError
from noisewise.core.schema import Schema
from noisewise.core.yaml_files import write_schema
from noisewise.federation.gather import read_settings
from tests.federation.hospital import COLUMNS


@pytest.fixture
def config(tmp_path):
    write_schema(Schema("study", COLUMNS), tmp_path / "study.yaml")
    return {
        "schema": str(tmp_path / "study.yaml"),
        "target": "stay",
        "features": "age, severity",
        "out": str(tmp_path / "out"),
        "holders": 3,
        "minimum-holders": 2,
        "max-epsilon": "1",
        "seed": 7,
    }


def test_settings_are_read(config):
    settings = read_settings(config)
    assert settings.proposal.features == ("age", "severity")
    assert (settings.holders, settings.minimum_holders, settings.seed) == (3, 2, 7)
    assert read_settings({**config, "seed": -1}).seed is None
    assert read_settings({**config, "max-epsilon": ""}).proposal.max_epsilon is None


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"schema": ""}, "schema: not given"),
        ({"schema": "nowhere.yaml"}, "no file"),
        ({"out": 7}, "out: not given"),
        ({"target": "weight"}, "'weight'"),
        ({"features": "age,,severity"}, "does not declare"),
        ({"holders": 1}, "minimum-holders: 2 is more"),
        ({"holders": 0}, "holders: expected a whole number"),
        ({"minimum-holders": True}, "minimum-holders: expected"),
        ({"timeout-seconds": "long"}, "timeout-seconds: expected"),
        ({"grace-seconds": -1}, "grace-seconds: expected"),
        ({"max-epsilon": "lots"}, "max-epsilon"),
        ({"epsilon": 5}, "epsilon: unknown setting"),
    ],
)
def test_mistakes_are_named(config, change, says):
    with pytest.raises(NoisewiseError, match=says):
        read_settings({**config, **change})
