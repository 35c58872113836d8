# The two commands of the README are `make demo` and `make test`; both set up what they need.
SHELL := /bin/bash
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
# Tests start hundreds of interpreters; without stored bytecode each spends more CPU on compiling than on its work.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: docs demo test monitoring unit integration e2e thorough simulate fuzz chaos mutations newest nightly bench gpu-check lint generate check-generated lock clean \
	install uninstall deploy undeploy release

demo: $(READY)
	@$(BIN)/elasticjob dev demo $(if $(KEEP),--keep)

# Five test processes, because most tests wait more than they compute; the tests of one file run in one process.
PARALLEL = --workers=$(or $(WORKERS),5) --durations=10

test: $(READY)
	$(BIN)/python -m pytest $(PARALLEL) tests

unit integration: $(READY)
	$(BIN)/python -m pytest $(PARALLEL) tests/$@

# On the embedded cluster, or on the cluster of KUBECONFIG (docs/testing.md). TESTS="file ..." runs these files only;
# FRAMEWORK=horovod, pytorch, torchrun, tensorflow, mxnet, jax: installs the framework, where it can, and runs its real processes.
e2e: $(READY)
ifdef FRAMEWORK
	@if [ -x tools/$(FRAMEWORK)_env ]; then tools/$(FRAMEWORK)_env || [ $$? = 77 ]; fi
	$(BIN)/python -m pytest tests/e2e/test_framework_$(FRAMEWORK)*.py --thorough -rs --durations=5
else
	$(BIN)/python -m pytest $(or $(TESTS),tests/e2e) \
		$(if $(KUBECONFIG),--kubeconfig=$(KUBECONFIG) --thorough --durations=0 --durations-min=5,$(PARALLEL))
endif

# What `make test` leaves out: slow tests, and random histories and inputs in their full number. Not the jobs of real
# frameworks, which are run one at a time (make e2e FRAMEWORK=...): they use fixed ports. SHARE=0/4: a quarter of the files.
# SEED=number repeats the random ones of an earlier run.
thorough: $(READY)
	$(BIN)/python -m pytest $(PARALLEL) $(if $(SHARE),--share=$(SHARE)) tests --only-thorough \
		$(if $(SEED),--hypothesis-seed=$(SEED)) \
		--ignore-glob="tests/e2e/test_framework_*"

# Random histories of a job under every fault; meant to run nightly.
simulate: $(READY)
	$(BIN)/python -m pytest tests/unit -k simulator --histories=$(or $(HISTORIES),20000)
	$(BIN)/python -m bench autoscaler_end_ratio autoscaler_ends_low autoscaler_first_hour autoscaler_four_hours \
	  autoscaler_too_many autoscaler_utility autoscaler_excess autoscaler_harm autoscaler_throughput_ratio autoscaler_deadline_met \
	  autoscaler_deadline_members autoscaler_cost_ratio

# Random bytes and messages at every port, INPUTS in total.
fuzz: $(READY)
	$(BIN)/python -m pytest tests/fuzz --inputs=$(or $(INPUTS),100000) $(if $(SEED),--fuzz-seed=$(SEED)) -rA

# Real jobs under random faults (docs/reliability.md). FAULTS="kill-master cut-masters": these only; -name: all but this.
chaos: $(READY)
	$(BIN)/python -m tests.chaos --minutes=$(or $(MINUTES),20) --seed=$(or $(SEED),1) --faults="$(FAULTS)" \
		$(if $(GAP),--gap=$(GAP)) $(if $(JOBS),--jobs=$(JOBS)) $(if $(PARTITIONS),--partitions=$(PARTITIONS)) \
		$(if $(POOL),--pool)

# Mutations of the cores: for each one a test must fail.
mutations: $(READY)
	$(BIN)/python -m tests.mutations $(MUTATION)

# The whole of `make test` with the newest Python of this machine, in an environment of its own. CI takes the oldest one.
newest:
	$(MAKE) test VENV=.venv-newest PYTHON=$$(tools/find_python newest)

# promtool, a real Prometheus and a real collector of OpenTelemetry, whose building takes ten minutes, once for a machine.
monitoring: $(READY)
	ELASTICJOB_TEST_PROMETHEUS=1 $(BIN)/python -m pytest tests/integration/test_monitoring.py --thorough
	ELASTICJOB_TEST_COLLECTOR=1 $(BIN)/python -m pytest tests/e2e/test_traces.py --thorough

# What CI has no time for: the newest Python, all slow tests, every kind of random test in a large number, mutations, every
# framework, and a real cluster; some hours.
SEED_OF_TODAY = $(shell date +%Y%j)
nightly: $(READY)
	$(MAKE) newest
	$(MAKE) thorough SEED=$(SEED_OF_TODAY)
	$(MAKE) simulate
	$(MAKE) fuzz SEED=$(SEED_OF_TODAY)
	$(MAKE) mutations
	$(MAKE) chaos SEED=$(SEED_OF_TODAY)
	$(MAKE) chaos SEED=$(SEED_OF_TODAY) PARTITIONS=2
	$(MAKE) chaos SEED=$(SEED_OF_TODAY) POOL=1
	tools/kubeflow_env > /dev/null || [ $$? = 77 ]
	$(BIN)/python -m pytest tests/unit/kube/test_kubeconfig.py tests/integration/test_client_beside_kubeflow.py --thorough -rs
	tools/trackers_env > /dev/null || [ $$? = 77 ]
	$(BIN)/python -m pytest tests/integration/test_agent_trackers.py -rs
	$(MAKE) monitoring
	tools/callbacks_env > /dev/null || [ $$? = 77 ]
	for framework in horovod pytorch torchrun tensorflow mxnet jax; do $(MAKE) e2e FRAMEWORK=$$framework || exit; done
	KUEUE=0.15 $(BIN)/python -m pytest tests/integration/test_operator_kueue.py --thorough
	.ci/on_the_rig
	$(BIN)/python -m pytest tests/integration/test_agent_launchers.py tests/integration/test_agent_callbacks.py \
		tests/unit/library/test_library_callbacks.py --thorough -rs

# FIGURE=name measures one figure only; bench/__main__.py lists them.
bench: $(READY)
	$(BIN)/python -m bench $(FIGURE)

# What jobs with GPUs rely on, on this machine (docs/cli.md). TORCH=...: a Python with PyTorch.
gpu-check: $(READY)
	$(BIN)/elasticjob doctor --gpu --python $(or $(TORCH),python3)

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

# The documentation as a site, in build/site. SERVE=1 serves it, and rebuilds it when a page changes.
docs: $(READY)
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs $(if $(SERVE),serve,build --strict)

generate: $(READY)
	$(BIN)/python -m tools.generate
	$(BIN)/python -m tools.render_deploy

check-generated: $(READY)
	$(BIN)/python -m tools.generate --check
	$(BIN)/python -m tools.render_deploy --check

# These install on the current cluster of kubectl (docs/install.md). MODE=namespaced: for the jobs of NAMESPACE only;
# MODE=admission: with the admission webhook.
PRESENT := $(shell sed -n 's/^version = "\(.*\)"/\1/p' pyproject.toml)
IMG ?= elasticjob-operator:$(PRESENT)
MASTER_IMG ?= elasticjob-master:$(PRESENT)
NAMESPACE ?= elasticjob-system
MODE ?= base
MANIFESTS = kubectl kustomize deploy/$(MODE) | sed -e 's|elasticjob-operator:$(PRESENT)|$(IMG)|' \
	-e 's|elasticjob-master:$(PRESENT)|$(MASTER_IMG)|' -e 's|elasticjob-system|$(NAMESPACE)|'

# Whatever MODE it was installed with. An operator for one namespace may have none, and not remove one.
WITHOUT_WEBHOOK = $(if $(filter namespaced,$(MODE)),,kubectl delete --ignore-not-found \
	validatingwebhookconfiguration/elasticjob-operator)

install:
	kubectl apply --server-side --force-conflicts -f crds/ -f policies/

uninstall:
	kubectl delete --ignore-not-found -f policies/ -f crds/

deploy:
	set -o pipefail; $(MANIFESTS) | kubectl apply --server-side --force-conflicts -f -
	$(if $(filter base,$(MODE)),$(WITHOUT_WEBHOOK))
	kubectl --namespace $(NAMESPACE) rollout status deployment/elasticjob-operator --timeout=180s || \
		{ kubectl --namespace $(NAMESPACE) describe pods; \
		kubectl --namespace $(NAMESPACE) logs --selector app.kubernetes.io/name=elasticjob-operator --tail=20; exit 1; }

undeploy:
	set -o pipefail; $(MANIFESTS) | kubectl delete --ignore-not-found -f -
	$(WITHOUT_WEBHOOK)

# Pins the packages of a checkout and of the images, with hashes. A pin changes only when pyproject.toml requires it, or
# with UPGRADE=--upgrade.
LOCK = $(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-annotate \
	--no-emit-index-url --no-emit-find-links --custom-compile-command 'make lock' $(UPGRADE)

lock: $(READY)
	$(LOCK) pyproject.toml --extra dev -o locks/dev.txt
	$(LOCK) --group build -o locks/build.txt
	$(LOCK) --group release -c locks/dev.txt -o locks/release.txt
	$(LOCK) pyproject.toml --extra master --extra otel -c locks/dev.txt -o locks/master.txt
	$(LOCK) pyproject.toml --extra examples -c locks/dev.txt -o locks/examples.txt
	@# A plain install includes the agent's dependencies; of them the operator needs protobuf only, for traces.
	$(LOCK) pyproject.toml --extra operator --extra otel -c locks/dev.txt -o locks/operator.txt \
		$(addprefix --no-emit-package ,grpcio psutil py-spy)

# The files of a release, in dist/VERSION (CONTRIBUTING.md).
release: $(READY)
	$(BIN)/python -m tools.release "$(VERSION)" $(if $(URL),--url=$(URL)) $(if $(REGISTRY),--registry=$(REGISTRY)) \
		$(if $(IMAGES),--images=$(IMAGES))

INSTALL = $(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes

$(READY): pyproject.toml locks/dev.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "ElasticJob needs Python 3.11 or newer; this is " + sys.version.split()[0] + ". Set PYTHON=python3.x")'
	@echo "Making the virtual environment in $(VENV) (once; half a minute)"
	@$(PYTHON) -m venv --clear $(VENV)
	@# uv takes a quarter of pip's time. pip is tried, too, since only pip reads the settings of a mirror in pip.conf.
	@sed -n '/^uv==/,/[^\\]$$/p' locks/dev.txt > $(VENV)/uv.txt
	@$(INSTALL) -r $(VENV)/uv.txt
	@VIRTUAL_ENV=$(VENV) $(BIN)/uv pip install --quiet --require-hashes -r locks/dev.txt -r locks/build.txt || \
		{ echo "uv failed; trying pip, which takes two minutes"; $(INSTALL) -r locks/dev.txt -r locks/build.txt; }
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $@

clean:
	rm -rf $(VENV) .venv-newest .mypy_cache .ruff_cache .pytest_cache
