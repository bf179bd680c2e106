"""`python -m ncdiag`."""

from ncdiag.cli import main

if __name__ == "__main__":
    main()
