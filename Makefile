# Thin wrappers over the CMake presets (CMakePresets.json); each line can be typed by hand.
PRESET ?= release
TEXT ?=

# Of gpu-check: where the figures go as JSON, and the part or the steps to run (all of them if empty). Of fuzz: one target. Of
# fault-points: the points whose names contain it. Of injections: parts of their names. Of planted: numbers of bugs, or parts of their names.
JSON ?=
ONLY ?=
PART ?=

# Of fuzz: how long each target runs, and with what it is built: fuzz, or fuzz-fast without sanitizers.
SECONDS ?= 60
FUZZ ?= fuzz

# Of fault-points: how often each is tried.
TIMES ?= 25

# Of chaos: the minutes of each of its three parts, and the seed of what is drawn: another each day.
MINUTES ?= 3
CHAOS_SEED ?= $(shell date +%j)

# Of simulate: how many histories of a whole cluster, and the seed of the first.
SEEDS ?= 100000
SEED ?= 10000000

.PHONY: setup configure build programs test test-asan test-tsan fuzz simulate test-compose fault-points chaos injections soak planted demo bench parity parity-packages gpu-bundle gpu-check format

setup:
	@scripts/setup.sh

configure: setup
	@mkdir -p build; cmake --preset $(PRESET) > build/configure.log 2>&1 || (cat build/configure.log; exit 1)

build: configure
	@cmake --build --preset $(PRESET)

# Without tests and benchmarks.
programs: configure
	@cmake --build --preset $(PRESET) --target penstock penstock-coordinator penstock-worker

test: build
	@ctest --preset $(PRESET)

# The tests of tests/quick_tests.cmake under a sanitizer; what only other tests need is not built.
test-asan test-tsan: test-%:
	@$(MAKE) --no-print-directory configure PRESET=$*
	@cmake --build --preset $* --target quick_tests
	@ctest --preset $* -L '^quick$$'

# With libFuzzer and Clang (packages-dev.txt): tests/fuzz/README.md.
fuzz:
	@$(MAKE) --no-print-directory configure PRESET=$(FUZZ)
	@cmake --build --preset $(FUZZ)
	@scripts/fuzz.sh build/$(FUZZ) $(SECONDS) $(ONLY)

# Histories of a whole cluster in virtual time (docs/testing.md).
simulate: configure
	@cmake --build --preset $(PRESET) --target simulation_world_test
	@PENSTOCK_SIMULATION_SEED=$(SEED) PENSTOCK_SIMULATION_COUNT=$(SEEDS) \
	  build/$(PRESET)/tests/simulation/simulation_world_test --gtest_filter=SimulationWorld.Histories*

# Brings docker-compose.yml up for real and takes it down; COMPILE=1 compiles in the image.
test-compose: build
	@scripts/compose_test.sh build/$(PRESET) $(if $(COMPILE),--compile)

# Kills processes of real clusters at each fault point: docs/testing.md.
fault-points:
	@$(MAKE) --no-print-directory configure PRESET=faults
	@cmake --build --preset faults
	@PYTHONDONTWRITEBYTECODE=1 python3 tests/fault_points/fault_points_test.py build/faults --times $(TIMES) $(if $(PART),--part $(PART)) $(if $(ONLY),--only $(ONLY))

# Disturbs real clusters at random and compares weights; half of the time workers that are killed stay away.
chaos: programs
	@$(CHAOS) --minutes $(MINUTES) --links
	@$(CHAOS) --minutes $(MINUTES) --links --spare 1
	@$(CHAOS) --minutes $(MINUTES) --snapshots

# What once broke the jobs of others, one after the other; as root, for it mounts small disks: docs/testing.md.
injections:
	@$(MAKE) --no-print-directory configure PRESET=faults
	@cmake --build --preset faults
	@PYTHONDONTWRITEBYTECODE=1 python3 tests/chaos/injections.py build/faults $(if $(ONLY),--only $(ONLY))

soak:
	@$(MAKE) --no-print-directory chaos MINUTES=30

# Plants known bugs, one after the other, into a checkout of its own, where a test must catch each: docs/testing.md.
planted: setup
	@PYTHONDONTWRITEBYTECODE=1 python3 tests/planted/planted.py build/planted --json build/planted/results.json $(if $(ONLY),--only $(ONLY))

CHAOS = PYTHONDONTWRITEBYTECODE=1 python3 tests/chaos/chaos.py build/$(PRESET) --seed $(CHAOS_SEED)

demo: programs
	@scripts/demo.sh build/$(PRESET) $(TEXT)

bench: build
	@scripts/bench.sh build/$(PRESET)

parity: build
	@scripts/parity.sh build/$(PRESET)

# With packages from PyPI; TEXT is a text of a megabyte or so, of which vocabularies are learned.
parity-packages: build
	@scripts/parity_packages.sh build/$(PRESET) $(TEXT)

# What a machine with a GPU and nothing of Penstock's libraries needs for gpu-check.
gpu-bundle: build
	@scripts/gpu_bundle.sh build/$(PRESET) $(TEXT)

gpu-check:
	@scripts/gpu_check.sh $(if $(TEXT),--text $(TEXT)) $(if $(JSON),--json $(JSON)) $(if $(ONLY),--only $(ONLY))

format:
	@git ls-files '*.cc' '*.h' | xargs clang-format -i
