"""One worker of a study: takes trials, trains each on the tuning's seeds, and reports the end of every task.

The runs of a trial lie in the tuning's folder under their hashes. A trial that is stopped or killed goes back to the
queue with its values, and whoever takes it goes on from the checkpoints of its runs.
"""

import shutil
import time
import warnings
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from datetime import datetime, timedelta
from pathlib import Path
from statistics import fmean
from typing import Any

from s6mod.engine.settings import Engine
from s6mod.errors import ConfigError, shortly
from s6mod.experiments.worker import dataset_on
from s6mod.locks import alone_in, hold, let_go
from s6mod.runs.config import RunConfig
from s6mod.runs.environment import describe
from s6mod.runs.execute import Interrupted, StopRequest, execute, stopping_politely
from s6mod.runs.progress import Progress
from s6mod.runs.run import Held, Run
from s6mod.tuning.config import Tuning

HEARTBEAT, GRACE = 5, 20  # seconds between signs of life of a trial, and without one until another worker takes it over
RETRIES = 3  # of a trial whose process was killed
PATIENCE = 0.5  # seconds between two looks at what others do
BEGUN, FAILURE, SEEDS, VERSIONS = "begun", "failure", "seeds", "versions"  # what a trial is marked with


def open_study(tuning: Tuning) -> Any:
    """The study, made if it is not there."""
    import optuna
    import sqlalchemy

    try:
        return _open_study(tuning)
    except (sqlalchemy.exc.SQLAlchemyError, optuna.exceptions.OptunaError, ImportError) as error:
        raise ConfigError(
            f"expected a database for the study, got {shortly(error)}; "
            "give --storage as sqlite:///FILE or as a URL whose driver is installed"
        ) from None


def _open_study(tuning: Tuning) -> Any:
    import optuna

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    tuning.folder.mkdir(parents=True, exist_ok=True)
    lite = tuning.storage.startswith("sqlite")
    with alone_in(tuning.folder), warnings.catch_warnings():  # two processes must not make the tables at once
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        storage = optuna.storages.RDBStorage(
            tuning.storage,
            engine_kwargs={"connect_args": {"timeout": 60}} if lite else {},
            heartbeat_interval=HEARTBEAT,
            grace_period=GRACE,
            heartbeat_stale_trial_callback=optuna.storages.RetryHeartbeatStaleTrialCallback(max_retry=RETRIES),
        )
        return optuna.create_study(
            storage=storage,
            study_name=tuning.name,
            direction="maximize",
            load_if_exists=True,
            sampler=optuna.samplers.TPESampler(),
            pruner=optuna.pruners.MedianPruner() if tuning.config.prune else optuna.pruners.NopPruner(),
        )


class Worker:
    """Takes trials until there are enough."""

    def __init__(self, tuning: Tuning, tell: Callable[[str], None]) -> None:
        self.tuning, self.tell = tuning, tell
        self.study = open_study(tuning)
        self.turn = ExitStack()  # holds the folder from counting the trials to having one more: none is too many

    def work(self) -> None:
        """Until the study has its trials; ``Interrupted`` by a signal."""
        import optuna

        with stopping_politely() as request, self.turn:
            while self._wanted(request):
                try:
                    self.study.optimize(lambda trial: self._objective(trial, request), n_trials=1, gc_after_trial=True)
                except Interrupted:
                    raise
                except optuna.exceptions.UpdateFinishedTrialError:
                    continue  # it was slow to show life, and another worker has taken it over
                except Exception as error:
                    self.tell(f"a trial failed: {shortly(error)}")
                finally:
                    self.turn.close()

    def _wanted(self, request: StopRequest) -> bool:
        """Whether to take a trial, once that is clear: one under way elsewhere may still come back."""
        import optuna

        State = optuna.trial.TrialState
        while True:
            _obey(request)
            self.turn.enter_context(alone_in(self.tuning.folder))
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
                optuna.storages.fail_stale_trials(self.study)
            self._give_back_unbegun()
            trials = self.study.get_trials(deepcopy=False)
            states = Counter(trial.state for trial in trials)
            failed = sum(trial.state == State.FAIL and FAILURE in trial.user_attrs for trial in trials)
            done = states[State.COMPLETE] + states[State.PRUNED] + failed
            if done >= self.tuning.config.trials:
                return False
            if states[State.WAITING] or done + states[State.RUNNING] < self.tuning.config.trials:
                return True
            self.turn.close()
            time.sleep(PATIENCE)

    def _give_back_unbegun(self) -> None:
        """Trials whose process was killed before their first sign of life, which Optuna would wait for for ever."""
        import optuna

        latest = datetime.now() - timedelta(seconds=GRACE)
        for trial in self.study.get_trials(deepcopy=False, states=(optuna.trial.TrialState.RUNNING,)):
            if trial.user_attrs.get(BEGUN) != trial.number and trial.datetime_start < latest:
                self.study.tell(trial.number, state=optuna.trial.TrialState.FAIL, skip_if_finished=True)
                if params := trial.params or trial.system_attrs.get("fixed_params"):
                    self.study.enqueue_trial(params)

    def _objective(self, trial: Any, request: StopRequest) -> float:
        import optuna

        self.turn.close()
        # Optuna's own thread may not have come to its first sign of life yet, and there is no public way to give one.
        self.study._storage.record_heartbeat(trial._trial_id)
        trial.set_user_attr(BEGUN, trial.number)
        params = {name: dimension.suggest(trial, name) for name, dimension in self.tuning.space.items()}
        try:
            value = self._judge(trial, params, request)
        except Interrupted:
            self.study.enqueue_trial(trial.params)
            raise
        except optuna.TrialPruned:
            self.tell(f"trial {trial.number}: given up, {_words(params)}")
            raise
        except Exception as error:
            trial.set_user_attr(FAILURE, shortly(error))
            raise
        self.tell(f"trial {trial.number}: {value:.2f} %, {_words(params)}")
        return value

    def _judge(self, trial: Any, params: dict[str, Any], request: StopRequest) -> float:
        """The metric's mean over the seeds, one after another; after each task, the mean so far is reported."""
        import optuna

        seeds = self.tuning.seeds
        curves: dict[int, list[float]] = {}  # by seed: accuracy over the tasks seen, after each task
        values: dict[str, float] = {}
        reported = 0

        def report(seed: int, curve: list[float], tasks: int) -> None:
            nonlocal reported
            mine = curves.setdefault(seed, [])
            for task in range(len(mine), len(curve)):
                mine.append(curve[task])
                trial.report(fmean(each[task] for each in curves.values()), reported)
                reported += 1
            if reported < len(seeds) * tasks and trial.should_prune():  # what is complete is not given up
                raise optuna.TrialPruned

        for seed in seeds:
            result = self._train(trial, self.tuning.run(params, seed), report, request)
            metrics = result["metrics"][self.tuning.cell.scores or result["primary"]]
            report(seed, metrics["curve"], len(metrics["curve"]))  # if the run was found done
            values[str(seed)] = metrics[self.tuning.config.metric]
            trial.set_user_attr(SEEDS, values)
        return fmean(values.values())

    def _train(
        self, trial: Any, whole: RunConfig, report: Callable[[int, list[float], int], None], request: StopRequest
    ) -> dict[str, Any]:
        """The result of one run, begun, gone on with, or found done."""
        import optuna

        device = Engine.resolve(whole.engine).device
        data = dataset_on(device, whole.data)
        config = self.tuning.shorten(whole, whole.data.seen_by(data, whole.seed).train_labels, data.num_classes)
        folder = self.tuning.folder / "runs" / config.folder_name
        trial.set_user_attr(VERSIONS, describe(device))
        runs: list[Run] = []

        def watch(progress: Progress) -> None:
            self.tell("")  # whoever listens may be gone
            if progress.ended:
                rows = runs[0].cursor.rows[self.tuning.cell.scores or runs[0].learner.primary]
                report(config.seed, [fmean(row) for row in rows], progress.tasks)

        def make() -> Run:
            runs.append(Run.open(config, folder, data, watch))
            return runs[0]

        while True:
            _obey(request)
            try:
                return execute([make])[0]
            except Held:  # another worker has a trial with the same values
                time.sleep(PATIENCE)
            except optuna.TrialPruned:
                _discard(folder)
                raise
            finally:
                runs.clear()


def _discard(folder: Path) -> None:
    """Remove a run that was given up, unless another worker has taken it up."""
    if (handle := hold(folder)) is not None:
        try:
            shutil.rmtree(folder)
        finally:
            let_go(handle)


def _obey(request: StopRequest) -> None:
    if request.number is not None:
        raise Interrupted([], 1, request.number)


def _words(params: dict[str, Any]) -> str:
    return ", ".join(
        f"{name}={value:.4g}" if isinstance(value, float) else f"{name}={value}" for name, value in params.items()
    )
