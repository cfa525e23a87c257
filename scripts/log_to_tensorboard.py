#!/usr/bin/env python3
"""Turns log.jsonl of a run into an event file for TensorBoard, with nothing but the standard library.

    scripts/log_to_tensorboard.py out/latest [--output DIR]      then: tensorboard --logdir DIR

The file is a sequence of records (length, its checksum, data, its checksum), as TensorFlow's record_writer.h defines them; the
data of each is a protobuf message Event with a Summary of scalars (event.proto, summary.proto).
"""
import argparse
import json
import os
import struct
import sys

# Field of log.jsonl -> name in TensorBoard.
STEP_SCALARS = {
    "loss": "loss/train",
    "grad_norm": "optimizer/gradient_norm",
    "lr": "optimizer/learning_rate",
    "tokens_per_s": "speed/tokens_per_s",
    "ms": "speed/step_ms",
    "mfu": "speed/mfu",
    "bubble": "pipeline/bubble",
    "bubble_predicted": "pipeline/bubble_predicted",
    "epoch": "progress/epoch",
}


def crc32c_table():
    table = []
    for value in range(256):
        for _ in range(8):
            value = (value >> 1) ^ (0x82F63B78 if value & 1 else 0)
        table.append(value)
    return table


TABLE = crc32c_table()


def masked_crc(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc = TABLE[(crc ^ byte) & 0xFF] ^ (crc >> 8)
    crc ^= 0xFFFFFFFF
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def varint(value):
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def delimited(field, data):
    return varint(field << 3 | 2) + varint(len(data)) + data


def scalar_event(time, step, scalars):
    """Event: wall_time = 1 (double), step = 2 (int64), summary = 5; Summary.Value: tag = 1, simple_value = 2 (float)."""
    values = b"".join(
        delimited(1, delimited(1, name.encode()) + varint(2 << 3 | 5) + struct.pack("<f", value))
        for name, value in scalars.items())
    return struct.pack("<Bd", 1 << 3 | 1, time) + varint(2 << 3) + varint(step) + delimited(5, values)


def version_event(time):
    return struct.pack("<Bd", 1 << 3 | 1, time) + delimited(3, b"brain.Event:2")


def write_record(file, data):
    length = struct.pack("<Q", len(data))
    file.write(length + struct.pack("<I", masked_crc(length)) + data + struct.pack("<I", masked_crc(data)))


def seconds_of(date):
    """Of "2026-12-01T02:03:04Z"; 0 if it is none."""
    from datetime import datetime, timezone
    try:
        return datetime.strptime(date, "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=timezone.utc).timestamp()
    except (TypeError, ValueError):
        return 0.0


def events_of(path):
    with open(path, encoding="utf-8", errors="replace") as log:
        for line in log:
            try:
                event = json.loads(line)
            except ValueError:
                continue  # half a line of a run that was killed
            if isinstance(event, dict):
                yield event


def convert(path, file):
    """Returns how many steps were written."""
    begin = now = 0.0
    steps = 0
    for event in events_of(path):
        kind = event.get("event")
        if kind == "start":
            begin = now = seconds_of(event.get("time"))
        if kind == "validation" and isinstance(event.get("loss"), (int, float)):
            write_record(file, scalar_event(now, int(event["step"]), {"loss/validation": event["loss"]}))
        if kind != "step":
            continue
        now = begin + (event.get("elapsed_s") or 0.0)
        scalars = {name: event[field] for field, name in STEP_SCALARS.items() if isinstance(event.get(field), (int, float))}
        write_record(file, scalar_event(now, int(event["step"]), scalars))
        steps += 1
    return steps


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("run", help="the folder of a run, or its log.jsonl")
    parser.add_argument("--output", help="folder of the event file; by default DIR/tensorboard beside the log")
    arguments = parser.parse_args()
    log = os.path.join(arguments.run, "log.jsonl") if os.path.isdir(arguments.run) else arguments.run
    if not os.path.exists(log):
        sys.exit(f"error: {log} does not exist: give the folder of a run, such as out/latest")
    folder = arguments.output or os.path.join(os.path.dirname(os.path.abspath(log)), "tensorboard")
    os.makedirs(folder, exist_ok=True)
    target = os.path.join(folder, "events.out.tfevents.train_gpt")
    with open(target, "wb") as file:
        write_record(file, version_event(0.0))
        steps = convert(log, file)
    print(f"{steps} steps written to {target}; look at them with: tensorboard --logdir {folder}")


if __name__ == "__main__":
    main()
