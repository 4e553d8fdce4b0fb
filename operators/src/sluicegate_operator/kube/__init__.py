"""A small asynchronous client-go: client, informer, work queue, leader election, events and writes.

It knows nothing of this project's resources; callers pass resource types, labels and converters. kopf is
not used, because its watches report what a list contains but not what it lacks, so a deletion that was
missed while nothing was watched would stay unnoticed (docs/decisions).
"""
