"""The cluster as the operator sees and changes it: API requests, views kept by watching, actions.

Not here: what to do (`reconcile`, `volumes`), when (`service`).
"""
