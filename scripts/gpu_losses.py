"""gpu_losses.py DESIGN FOLDER: fails unless the losses of FOLDER/DESIGN-metrics.jsonl fall clearly.
gpu_losses.py --table FOLDER DESIGN...: the designs' figures as a Markdown table.
"""

import json
import statistics
import sys
from pathlib import Path

ENDS = 10  # steps averaged at each end
FALL = 0.95  # the last mean must be below this share of the first


def read(folder, design):
    """The step events, in order, and the done event (or an empty object)."""
    steps, done = [], {}
    path = folder / f"{design}-metrics.jsonl"
    for line in path.read_text().splitlines() if path.exists() else []:
        event = json.loads(line)
        if event.get("event") == "step":
            steps.append(event)
        elif event.get("event") == "done":
            done = event
    return steps, done


def verdict(losses):
    """Whether the losses fall, and a line that says so."""
    if len(losses) < 2 * ENDS:
        return False, f"wanted at least {2 * ENDS} steps, got {len(losses)}"
    first, last = statistics.fmean(losses[:ENDS]), statistics.fmean(losses[-ENDS:])
    falls = last < FALL * first  # false for a loss that is not a number, too
    return falls, f"mean loss {first:.3f} over the first {ENDS} steps, {last:.3f} over the last {ENDS}"


def speed(steps):
    """Tokens per second after the first fifth of the steps, which pays for warming up."""
    first, last = steps[len(steps) // 5], steps[-1]
    seconds = last["seconds"] - first["seconds"]  # both since the run's start
    return f"{(last['tokens'] - first['tokens']) / seconds:.0f}" if seconds > 0 else "not measured"


def memory(folder, design, done):
    """Most memory on the GPU, MiB: of tensors, as the trainer counted it, and in use, as nvidia-smi showed it."""
    counted = f"{done['peak_bytes'] / 2**20:.0f}" if "peak_bytes" in done else "not counted"
    path = folder / f"{design}-memory.txt"
    values = [int(word) for word in path.read_text().split() if word.isdigit()] if path.exists() else []
    return f"{counted} / {max(values) if values else 'not sampled'}"


def row(folder, design):
    steps, done = read(folder, design)
    if not steps:
        return f"| {design} | no steps |  |  |  |  |"
    validation = f"{done['validation_loss']:.4f}" if "validation_loss" in done else "none"
    return (
        f"| {design} | {steps[0]['loss']:.4f} | {steps[-1]['loss']:.4f} | {speed(steps)} | {memory(folder, design, done)} | "
        f"{validation} |"
    )


def main(arguments):
    if arguments[0] == "--table":
        print("| 100m, bf16, 50 steps | first loss | last loss | tokens/s | peak memory, tensors / nvidia-smi, MiB | validation loss |")
        print("| --- | --- | --- | --- | --- | --- |")
        for design in arguments[2:]:
            print(row(Path(arguments[1]), design))
        return 0
    falls, said = verdict([step["loss"] for step in read(Path(arguments[1]), arguments[0])[0]])
    print(f"{arguments[0]}: {said}: {'falling' if falls else 'NOT FALLING'}")
    return 0 if falls else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
