"""Which runs may be compared point by point: same schedule, same data in the same order, same batch."""

from mhar.runs import Run

# The peak rate, design and precision are what comparisons are about, so they are not here.
PAIRED = ("steps", "warm-up", "rate-floor", "seed", "sequence", "global-batch", "validation-windows")


def contradictions(run: Run) -> list[str]:
    """Where a run's own metrics come from other options than its config.toml: a log pieced together from a run that was
    planned otherwise."""
    found = []
    for start in run.starts:
        for option in PAIRED:
            logged = start.get(option, start.get(option.replace("-", "_")))
            if logged is not None and option in run.config and logged != run.config[option]:
                found.append(f"{option} ({run.config[option]} in {run.label}'s config.toml against {logged} in line "
                             f"{start['line']} of its metrics.jsonl)")
    if run.last_step > run.planned:
        found.append(f"steps ({run.planned} in {run.label}'s config.toml against {run.last_step} reached in its "
                     "metrics.jsonl)")
    return found


def differences(first: Run, other: Run) -> list[str]:
    """Each option, or fact of the logs, that keeps `other` from being paired with `first`, with both values."""
    found = [f"{option} ({first.config.get(option)} in {first.label} against {other.config.get(option)} in "
             f"{other.label})" for option in PAIRED if first.config.get(option) != other.config.get(option)]
    if first.data_hash != other.data_hash:
        found.append(f"data ({first.data_hash} in {first.label} against {other.data_hash} in {other.label})")
    return found or _rate_difference(first, other)


def _rate_difference(first: Run, other: Run) -> list[str]:
    """The rates that were really used, as fractions of each run's peak. Options can agree while a log was continued from a
    run that was planned with another schedule."""
    fractions = [{event["step"]: event["rate"] / run.config["rate"] for event in run.steps if event.get("rate")}
                 if run.config.get("rate") else {} for run in (first, other)]
    for step in sorted(fractions[0].keys() & fractions[1].keys()):
        ours, theirs = fractions[0][step], fractions[1][step]
        if abs(ours - theirs) > 1e-6 * max(ours, theirs):
            return [f"schedule (rate {ours:.6g} of the peak at step {step} in {first.label} against {theirs:.6g} in "
                    f"{other.label})"]
    return []
