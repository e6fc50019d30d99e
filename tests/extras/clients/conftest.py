from tests.server.conftest import live as live
