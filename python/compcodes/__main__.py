"""``python -m compcodes`` is the command ``compcodes``."""

from compcodes.cli import main

raise SystemExit(main())
