#!/usr/bin/env bash
# Theory, simulation, timed device and real CPU side by side; see reproduce_bubbles.py --help.
exec python3 "$(dirname "$0")/reproduce_bubbles.py" "$@"
