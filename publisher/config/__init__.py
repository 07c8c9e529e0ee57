"""The configuration: settings as types, table by table, and the file that they are read from."""
