"""What a user of the command-line modules gets to see when an input is wrong."""


class InputError(Exception):
    """What the user gave or the machine lacks; the modules print it on one line and exit with 2."""

    def __init__(self, operation: str, argument: object, wanted: str, got: object, remedy: str):
        argument = f": {argument}" if str(argument) else ""
        text = f"{operation}{argument}: wanted {wanted}, got {got}; {remedy}"
        super().__init__(" ".join(text.split()))
