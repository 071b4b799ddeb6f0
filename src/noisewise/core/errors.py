"""Every error that noisewise raises on purpose.

Messages name the argument, what was given and what to do. They are shown to the holder before
anything is published, and they never quote a value from the data: a log file is a release too.
"""


class NoisewiseError(Exception):
    """Base of all deliberate errors; `exit_code` is what the command line returns."""

    exit_code = 1


class RequestError(NoisewiseError):
    """The request itself makes no sense (an unknown column, a negative epsilon)."""

    exit_code = 2


class SchemaError(NoisewiseError):
    """The schema is malformed or contradicts itself."""

    exit_code = 3


class DataError(NoisewiseError):
    """The data do not fit the schema. Nothing was published; what was charged stays pending."""

    exit_code = 4


class BudgetError(NoisewiseError):
    """The privacy budget does not allow the request."""

    exit_code = 5


class ReleaseError(NoisewiseError):
    """A Release file is damaged, malformed or of an unknown version."""

    exit_code = 6


class SignatureError(ReleaseError):
    """A Release's signature is wrong, or not by a key that the reader trusts."""


class LedgerError(NoisewiseError):
    """The ledger file is not a ledger, is damaged, or is busy."""

    exit_code = 7
