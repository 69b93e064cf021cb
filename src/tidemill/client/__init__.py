"""Client: the operations of `Mill` on a server, over HTTP."""
