#!/usr/bin/env python3
"""embed.py FILE OUTPUT NAME: the bytes of FILE as a C array NAME, ended by a NUL, and its length NAME_len."""

import sys
from pathlib import Path

source, output, name = sys.argv[1:]
data = Path(source).read_bytes()
rows = (", ".join(str(byte - 256 if byte > 127 else byte) for byte in data[at:at + 20]) for at in range(0, len(data), 20))
Path(output).write_text(
    f'#include "http/api_docs.h"\n\nconst char {name}[] = {{\n    '
    + ",\n    ".join(rows) + f",\n    0,\n}};\nconst gsize {name}_len = {len(data)};\n")
