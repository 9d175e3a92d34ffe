"""The book of record: ledger, documents, series and counters in one database.

:class:`~gridaware.store.controller.ControllerStore` is the only writer;
:class:`~gridaware.store.reader.StoreReader` is everybody else.
"""
