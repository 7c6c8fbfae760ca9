"""The command line, `llama-eagle`. Imports nothing itself: Ctrl-C is taken care of before anything slow."""


def main(argv: "list[str] | None" = None) -> int:
    """Runs the command line, the process's own where `argv` is None; returns the exit status, as in command.py."""
    try:
        if argv is None:
            from .leave import leave_on_ctrl_c  # noqa: PLC0415

            leave_on_ctrl_c()
        from .command import main as run  # noqa: PLC0415

        return run(argv)
    except KeyboardInterrupt:
        return 130
