"""`python -m perdure` is `perdure`."""

from __future__ import annotations

import sys

from perdure.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
