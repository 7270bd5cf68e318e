# The commands a person types; the work is in scripts/. TEXT=FILE_OR_FOLDER gives `make demo` another text.
export TEXT

.PHONY: help setup build demo test check format clean
.DEFAULT_GOAL := help

help:
	@echo "make demo    set up, build, train a standard and an mhar model on text, write runs/demo/report.html"
	@echo "             (TEXT=FILE_OR_FOLDER: other text than Python's own library)"
	@echo "make test    set up, build, run all tests and the quick gates"
	@echo "make check   make test, clang-tidy, sanitizers, fuzzing, long tests: what CI runs, at most 45 minutes"
	@echo "make build   set up and build; the program is build/mhar"
	@echo "make setup   install what building and running need (scripts/setup --help)"
	@echo "make format  rewrite C++ and CUDA sources in the project's format"
	@echo "make clean   remove build folders; runs and the virtual environment stay"

setup:
	@scripts/setup

build: setup
	@scripts/build --target mhar

demo: build
	@scripts/demo "$$TEXT"

test:
	@scripts/test

check:
	@scripts/check

format: setup
	@scripts/lint/format --fix

clean:
	rm -rf build build-sanitize build-fuzz build-tidy
