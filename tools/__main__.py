"""`python -m ipcbus_tools` is the command `ipcbus`."""

from ipcbus_tools.cli import main

if __name__ == "__main__":
    main()
