# Thin wrappers over the CMake presets (CMakePresets.json); each line can be typed by hand.
PRESET ?= release
TEXT ?=

.PHONY: setup build test demo bench parity format

setup:
	@scripts/setup.sh

build: setup
	@mkdir -p build; cmake --preset $(PRESET) > build/configure.log 2>&1 || (cat build/configure.log; exit 1)
	@cmake --build --preset $(PRESET)

test: build
	@ctest --preset $(PRESET)

demo: build
	@scripts/demo.sh build/$(PRESET) $(TEXT)

bench: build
	@scripts/bench.sh build/$(PRESET)

parity: build
	@scripts/parity.sh build/$(PRESET)

format:
	@git ls-files '*.cc' '*.h' | xargs clang-format -i
