"""The HTML report of a comparison."""


def write_report(folder, config, result, rows):
    pass
