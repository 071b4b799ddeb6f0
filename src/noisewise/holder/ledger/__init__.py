"""The durable privacy budget of a data holder: one SQLite file, charged before data is touched.

The file is an append-only log. Nothing in it is ever changed or deleted: a cap, a reservation and a
publication are each one more entry, and the state of every account is the fold of all entries.
Every entry carries the SHA-256 of itself and its predecessor, and the end of the chain is kept
beside it, so that a flipped bit or a lost row is an error and never a smaller sum. The chain has no
secret key: it finds accidents, not a holder who rewrites their own file, and a file that is
replaced whole by an older backup looks intact.

The life of a charge::

    reserve ──► pending ──► commit ──► published   (with the Release's text, in one transaction)
                   │  ▲
                   └──┘ an error, a crash          (it still counts; the same request resumes it)

Postcondition, whatever is killed whenever: a Release that left the process has a charge that
counts. *Proof.* The caller lets a Release out only after `commit` returned its text, and `commit`
returns only text that is stored with a published charge. A published charge is never changed, and
it becomes published only from pending, hence after it was counted. Each transaction takes SQLite's
write lock *before* it reads (BEGIN IMMEDIATE), so what it decides on is what it writes to, and with
the rollback journal and ``synchronous=EXTRA`` it is either wholly on disk when COMMIT returns, or
not at all.

A charge is final: rows may have been read under it, and an error about them is an answer too, which
must not be free. So a charge that is pending after an error or a crash still counts. The same
request takes it up again at no further cost, which is sound because no noise of the first attempt
left its process, or decided that there is a second one. (Older versions lifted a charge after an
error: ledgers may hold such "void" entries, which don't count. Today an entry is void only if the
same request was charged again at another price in the same transaction, after an upgrade.)

A data set is released under a cap that was set for it, and under no other: only setting a cap makes
a ledger.

`ledger` decides, on the `accounts` and `charges` that are folded from its `file`; `accounts` tells
which of the charges one person may bear; `refusals` keeps apart names that could be taken for one
another, knows the rows of a batch again, and says what to do next.
"""

from noisewise.holder.ledger.accounts import Account, Quote
from noisewise.holder.ledger.charges import Charge, ChargeRecord, Reservation
from noisewise.holder.ledger.ledger import Ledger

__all__ = ["Account", "Charge", "ChargeRecord", "Ledger", "Quote", "Reservation"]
