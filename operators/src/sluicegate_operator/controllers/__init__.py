"""Controllers, caches and metrics of the operator process, one module for each kind of resource."""
