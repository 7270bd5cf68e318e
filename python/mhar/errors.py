"""The Python side of src/base/error.h: what the user gave or the machine lacks. Programs print it and exit with 2."""


class InputError(Exception):
    """Says operation, argument (may be empty), what was wanted, what was got, and what to do."""

    def __init__(self, operation: str, argument: object, wanted: str, got: object, remedy: str):
        subject = f"{operation}: {argument}" if str(argument) else operation
        super().__init__(f"{subject}: wanted {wanted}, got {got}; {remedy}")
