"""Say what is in a file: a model, an index, or vectors."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from compcodes import CompositionalCodes, Index
from compcodes.cli.common import amount, table
from compcodes.data import load

NAME = "info"
