"""MLflow: what its client finds in the file beside a run."""

import pytest
from tracked import logged, record, tracked_run

from rlcli.trackers.mlflow import ARTIFACTS, FILE, mlflow

tracking = pytest.importorskip("mlflow.tracking")
pytest.importorskip("sqlalchemy")
pytestmark = [
    pytest.mark.slow,  # MLflow takes seconds to make its database
    pytest.mark.filterwarnings("ignore"),  # those of MLflow and SQLAlchemy
]


@pytest.fixture
def client(tmp_path, monkeypatch):
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    return lambda: tracking.MlflowClient(f"sqlite:///{tmp_path / FILE}")


def only_run(client, experiment="dqn"):
    found = client.get_experiment_by_name(experiment)
    (run,) = client.search_runs([found.experiment_id])
    return run


def test_mlflow_takes_no_histograms():
    assert not mlflow().takes_histograms


def test_a_resumed_run_continues_its_run_of_mlflow(tmp_path, client):
    run = tracked_run(tmp_path / "run")
    film = tmp_path / "film.gif"
    film.write_bytes(b"GIF")
    logged(
        mlflow(),
        run,
        [record(10, 2.5, films={"evaluation/film": film}), record(10, 2.0, seed=0)],
    )
    logged(mlflow(), run._replace(step=10), [record(20, 4.0)])
    found = only_run(client())
    assert (found.info.run_name, found.info.status) == ("dqn/first", "FINISHED")
    assert found.data.params["tracer.n"] == "3"
    assert found.data.params["network.layers"] == "[64, 64]"
    assert found.data.tags["tag"] == "true" and found.data.tags["status"] == "finished"
    history = client().get_metric_history(found.info.run_id, "train/return")
    assert [(item.step, item.value) for item in history] == [(10, 2.5), (20, 4.0)]
    assert found.data.metrics["seed_0/train/return"] == 2.0
    (artifact,) = (tmp_path / ARTIFACTS).rglob("*.gif")
    assert artifact.parent.name == "film"
