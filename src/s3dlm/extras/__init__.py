"""Parts that reach the core only through its registries and entry points, as any package could."""
