/* The commit protocol of docs/concepts/protocol.md; README.md says what is modelled and what is not.

   Drivers run one after another or at once. A driver that is never scheduled again is a killed one;
   one that is scheduled late is a zombie. At any moment `init` stops every process, empties the network,
   and lets one healthy driver recover. Set by -D: DRIVERS, SEALERS, SUCCESSORS, FAULTS, and one BUG_…
   that takes a rule out. */

#ifndef DRIVERS
#define DRIVERS 2
#endif
#ifndef SEALERS
#define SEALERS 0
#endif
#ifndef SUCCESSORS
#define SUCCESSORS 0
#endif
#ifndef FAULTS
#define FAULTS 1
#endif

#define EPOCHS 2
#define TRIES 2
#define NONE 255

#define KAFKA 0              /* fences: a new transaction ends the one before */
#define MYSQL 1              /* locks: a transaction waits for the one before */
#define SINKS 2

#define SEAL 99              /* in the place of a record: the lineage has ended there */
#define IN_FLIGHT 98         /* the owner of a transaction whose commit is still in the network */

/* The invariants. Always false: they name the assertion that is violated. */
bool presumed_abort, once, order, atomicity, commit_log, seal, marker;

/* --- the checkpoint: what a driver finds -------------------------------------------------------- */

byte record[EPOCHS + 1];     /* the attempt that is decided, 0 if none: an attempt is the id of its driver */
bool overlapped[EPOCHS + 1];
bool offsets[EPOCHS + 1], commits[EPOCHS + 1], applied[EPOCHS + 1];
byte before[EPOCHS + 1];     /* the attempt of the epoch before, which the record names */
byte newest, logged;         /* the newest record or seal, and offsets, each plus one */

/* --- the sinks ---------------------------------------------------------------------------------- */

byte rows[SINKS * (EPOCHS + 1)];   /* sink and epoch -> the attempt whose rows are visible, 0 if none */
byte marker_epoch[SINKS];          /* 0: none; otherwise the epoch plus one */
byte marker_attempt[SINKS];
byte owner[SINKS];                 /* of the open transaction, 0 if none is open */

/* --- the network and the faults ----------------------------------------------------------------- */

byte late_record = NONE, late_attempt;
bool late_overlapped;
byte late_epoch[SINKS], late_by[SINKS];
byte faults = FAULTS;
bool frozen;                       /* every process is dead, and a healthy driver recovers */
byte sealed = NONE;

#define ROWS(sink, epoch) rows[(sink) * (EPOCHS + 1) + (epoch)]
#define DECIDED(epoch) (record[epoch] != 0 && record[epoch] != SEAL)
#define EVERYWHERE(epoch) (ROWS(KAFKA, epoch) != 0 && ROWS(MYSQL, epoch) != 0)
#ifdef BUG_DECISION_PASSES_SEAL
#define IS_FREE(epoch, attempt) (record[epoch] == 0 || (record[epoch] == SEAL && attempt != SEAL))
#else
#define IS_FREE(epoch, attempt) (record[epoch] == 0)
#endif

/* Creates a record or a seal unless there is one. */
inline put(epoch, attempt, is_overlapped) {
    if
    :: IS_FREE(epoch, attempt) ->
        assert(order || attempt == SEAL || epoch == 0 || EVERYWHERE((epoch) - 1));
        record[epoch] = attempt;
        if :: newest < (epoch) + 1 -> newest = (epoch) + 1 :: else fi;
        if
        :: attempt == SEAL ->
            assert(seal || (epoch > 0 && EVERYWHERE((epoch) - 1)));
            sealed = epoch
        :: else ->
            assert(seal || sealed == NONE || epoch < sealed);
            overlapped[epoch] = is_overlapped;
            if :: (epoch) > 0 -> before[epoch] = record[(epoch) - 1] :: else fi
        fi
    :: else
    fi
}

/* Commits the open transaction of a sink: its rows and its marker. */
inline commit_rows(sink, epoch, attempt) {
    assert(presumed_abort || record[epoch] == attempt);
    assert(once || ROWS(sink, epoch) == 0);
    assert(order || epoch == 0 || ROWS(sink, (epoch) - 1) != 0);
    assert(seal || sealed == NONE);
    ROWS(sink, epoch) = attempt;
#ifndef BUG_MARKER_OUTSIDE
    marker_epoch[sink] = epoch + 1;
    marker_attempt[sink] = attempt;
#endif
    owner[sink] = 0
}

/* Ends the transaction without a commit. */
inline release(sink) {
    if :: owner[sink] == me -> owner[sink] = 0 :: else fi
}

#define IS_THIS(sink, epoch, attempt) \
    (marker_epoch[sink] == (epoch) + 1 && marker_attempt[sink] == attempt)
#define IS_PREVIOUS(sink, epoch) \
    (((epoch) == 0 && marker_epoch[sink] == 0) || \
     ((epoch) > 0 && marker_epoch[sink] == (epoch) && marker_attempt[sink] == before[epoch]))

/* --- a driver ----------------------------------------------------------------------------------- */

#define AFTER_BACKGROUND 0
#define AFTER_PREVIOUS 1
#define AFTER_DECISION 2
#define AFTER_LAST 3

proctype Driver(byte me) {
    byte epoch, found, tries, sink;
    byte applying, back;             /* the epoch of an apply, and where to continue after it */
    byte background = NONE;          /* decided, and still to apply */
    bool background_replayed;        /* not decided by this driver */
    byte last_applied = NONE;
    bool overlap, replayed;

    /* the settings may differ from those of the driver before */
    atomic { !frozen -> if :: overlap = false :: overlap = true fi }

    /* recovery.pending_apply */
    atomic { !frozen ->
        if
        :: newest > 0 && record[newest - 1] == SEAL -> goto dead
        :: newest > 0 && DECIDED(newest - 1) && commits[newest - 1] && overlapped[newest - 1] &&
           !applied[newest - 1] ->
            background = newest - 1; background_replayed = true
        :: else
        fi
    }
    atomic { !frozen ->
        epoch = logged;
        if :: epoch > 0 && !commits[epoch - 1] -> epoch = epoch - 1; goto run_epoch :: else fi
    }
next:
    atomic { !frozen ->
        if
        :: epoch == EPOCHS -> goto ending
        :: epoch < EPOCHS && offsets[epoch] -> goto dead         /* Spark's log has another writer */
        :: else -> offsets[epoch] = true; logged = epoch + 1
        fi
    }
run_epoch:                                                        /* coordinator.run_epoch */
    atomic { !frozen -> found = record[epoch]; if :: found == SEAL -> goto dead :: else fi }
    atomic { !frozen ->
        if
        :: newest > epoch + 1 -> goto dead                       /* Fenced */
        :: else
        fi
    }
    /* found, or staged; now the epoch before must be in every sink */
    atomic { !frozen ->
        if
        :: background != NONE ->
            applying = background; replayed = background_replayed; back = AFTER_BACKGROUND; goto apply
        :: else
        fi
    }
awaited:
    atomic { !frozen -> if :: found != 0 -> replayed = true; goto decided :: else fi }
#ifndef BUG_NO_SECOND_LOOK
    atomic { !frozen ->
        if
        :: epoch > 0 && last_applied != epoch - 1 && DECIDED(epoch - 1) && overlapped[epoch - 1] &&
           !applied[epoch - 1] ->
            applying = epoch - 1; replayed = true; back = AFTER_PREVIOUS; goto apply
        :: else
        fi
    }
#endif
ready:
    tries = TRIES;
decide:
#ifdef BUG_APPLY_BEFORE_DECIDE
    atomic { !frozen -> if :: ROWS(KAFKA, epoch) == 0 -> commit_rows(KAFKA, epoch, me) :: else fi }
#endif
    atomic { !frozen ->
        if
        :: put(epoch, me, overlap)                               /* also if the reply is lost */
        :: faults > 0 -> faults--
        :: faults > 0 && late_record == NONE ->
            faults--; late_record = epoch; late_attempt = me; late_overlapped = overlap
        fi
    }
    atomic { !frozen ->
        found = record[epoch];
        tries--;
        if
        :: found == 0 && tries > 0 -> goto decide
        :: found != me && !(found == 0 && tries > 0) -> goto dead /* Fenced, Sealed, DecisionUnknown */
        :: else
        fi
    }
    atomic { !frozen -> if :: newest > epoch + 1 -> goto dead :: else -> replayed = false fi }
decided:
    atomic { !frozen ->
        if
#ifdef BUG_OVERLAP_BY_SETTING
        :: overlap ->
#else
        :: overlap && overlapped[epoch] ->
#endif
            background = epoch; background_replayed = replayed
        :: else -> applying = epoch; back = AFTER_DECISION; goto apply
        fi
    }
done:
    atomic { !frozen ->
        if :: commits[epoch] -> goto dead :: else fi;            /* Spark's log has another writer */
        assert(commit_log || DECIDED(epoch));
        assert(commit_log || EVERYWHERE(epoch) || (overlapped[epoch] && (epoch == 0 || EVERYWHERE(epoch - 1))));
        commits[epoch] = true;
        epoch++;
        goto next
    }
ending:
    atomic { !frozen ->
        if
        :: background != NONE ->
            applying = background; replayed = background_replayed; back = AFTER_LAST; goto apply
        :: else -> goto dead
        fi
    }
finished:
    atomic { !frozen -> applied[last_applied] = true; goto dead }

apply:                                                           /* coordinator.apply */
    atomic { !frozen ->
        if :: replayed && applied[applying] -> last_applied = applying; goto returned :: else fi;
        sink = KAFKA; tries = TRIES
    }
open:
    atomic {
        (!frozen && (sink == KAFKA || owner[sink] == 0)) ->
#ifdef BUG_NO_FENCING
        if :: owner[sink] == 0 -> owner[sink] = me :: else fi
#else
        owner[sink] = me
#endif
    }
    atomic { !frozen ->
        if
#ifndef BUG_NO_FENCING
        :: owner[sink] != me -> goto failed
#endif
        :: IS_THIS(sink, applying, record[applying]) -> release(sink); goto has_it
        :: marker_epoch[sink] > applying + 1 -> release(sink); goto dead          /* Fenced */
        :: else -> assert(marker || IS_PREVIOUS(sink, applying))
        fi
    }
    atomic { !frozen ->
        if
#ifdef BUG_NO_FENCING
        :: commit_rows(sink, applying, record[applying])
#else
        :: owner[sink] != me -> goto failed
        :: owner[sink] == me -> commit_rows(sink, applying, record[applying])
#endif
        :: owner[sink] == me && faults > 0 ->                     /* the reply is lost */
            faults--; commit_rows(sink, applying, record[applying]); goto failed
        :: owner[sink] == me && faults > 0 -> faults--; release(sink); goto failed
        :: owner[sink] == me && faults > 0 ->
            faults--; owner[sink] = IN_FLIGHT; late_epoch[sink] = applying;
            late_by[sink] = record[applying]; goto failed
        fi
    }
#ifdef BUG_MARKER_OUTSIDE
    atomic { !frozen -> marker_epoch[sink] = applying + 1; marker_attempt[sink] = record[applying] }
#endif
has_it:
    atomic { !frozen ->
        sink++; tries = TRIES;
        if :: sink < SINKS -> goto open :: else -> last_applied = applying fi
    }
returned:
    atomic { !frozen ->
        if :: applying == background -> background = NONE; background_replayed = false :: else fi;
        if
        :: back == AFTER_BACKGROUND -> goto awaited
        :: back == AFTER_PREVIOUS -> goto ready
        :: back == AFTER_DECISION -> goto done
        :: back == AFTER_LAST -> goto finished
        fi
    }
failed:
    atomic { !frozen -> tries--; if :: tries > 0 -> goto open :: else -> goto dead fi }  /* Stuck */
dead:
    atomic { !frozen -> if :: owner[MYSQL] == me -> owner[MYSQL] = 0 :: else fi }
}

/* --- savepoints and takeover -------------------------------------------------------------------- */

/* Seals the lineage after the newest decision, as `sluicegate savepoint take --move` does. */
proctype Sealer() {
    byte at, tries = TRIES;
    atomic { !frozen ->
        at = newest;
        if
        :: at == 0 || record[at - 1] == SEAL -> goto given_up
#ifndef BUG_SEAL_WITHOUT_LOOK
        :: at > 0 && record[at - 1] != SEAL &&
           !(commits[at - 1] && (!overlapped[at - 1] || applied[at - 1])) -> goto given_up
#endif
        :: else
        fi
    }
create:
    atomic { !frozen ->
        if
        :: put(at, SEAL, false)
        :: faults > 0 -> faults--
        :: faults > 0 && late_record == NONE ->
            faults--; late_record = at; late_attempt = SEAL
        fi
    }
    atomic { !frozen -> tries--; if :: record[at] == 0 && tries > 0 -> goto create :: else fi }
given_up:
    skip
}

/* Runs the epoch of the seal in a new lineage, after it has taken over the sinks of the old one. */
proctype Successor(byte me) {
    byte sink = KAFKA;
    atomic { !frozen && sealed != NONE -> skip }
#ifndef BUG_NO_TAKEOVER
take_over:
    atomic {
        (!frozen && (sink == KAFKA || owner[sink] == 0)) ->
        owner[sink] = 0;                                         /* an open transaction is aborted */
        if
        :: marker_epoch[sink] == sealed + 1 -> goto dead         /* moved by another successor: Fenced */
        :: else -> assert(marker || IS_THIS(sink, sealed - 1, record[sealed - 1]))
        fi;
        marker_epoch[sink] = sealed + 1; marker_attempt[sink] = me;
        sink++;
        if :: sink < SINKS -> goto take_over :: else -> sink = KAFKA fi
    }
#endif
write:
    /* in transactions and with markers of the new lineage, which nobody else has */
    atomic { !frozen ->
        assert(once || ROWS(sink, sealed) == 0);
        ROWS(sink, sealed) = me;
        sink++;
        if :: sink < SINKS -> goto write :: else fi
    }
dead:
    skip
}

/* --- the network and the end -------------------------------------------------------------------- */

inline deliver_record() {
    put(late_record, late_attempt, late_overlapped);
    late_record = NONE; late_attempt = 0; late_overlapped = false
}

inline deliver_commit(at) {
    commit_rows(at, late_epoch[at], late_by[at]);
    late_epoch[at] = 0; late_by[at] = 0
}

proctype Network() {
end:
    do
    :: atomic { !frozen && late_record != NONE -> deliver_record() }
    :: atomic { !frozen && owner[KAFKA] == IN_FLIGHT -> deliver_commit(KAFKA) }
    :: atomic { !frozen && owner[MYSQL] == IN_FLIGHT -> deliver_commit(MYSQL) }
    :: atomic { !frozen && owner[MYSQL] != 0 && faults > 0 -> faults--; owner[MYSQL] = 0 }
    od
}

inline redo(epoch, at) {
    if
    :: IS_THIS(at, epoch, record[epoch])
    :: else ->
        assert(marker || IS_PREVIOUS(at, epoch));
        commit_rows(at, epoch, record[epoch])
    fi
}

init {
    byte number, pending;
    atomic {
        run Network();
        number = 1;
        do :: number <= DRIVERS -> run Driver(number); number++ :: else -> break od;
        number = 1;
        do :: number <= SEALERS -> run Sealer(); number++ :: else -> break od;
        number = 1;
        do :: number <= SUCCESSORS -> run Successor(10 + number); number++ :: else -> break od
    }
    /* at any moment: all are killed, requests in the network arrive or do not, one driver recovers */
    atomic {
        frozen = true;
        if :: late_record != NONE -> deliver_record() :: true fi;
        if :: owner[KAFKA] == IN_FLIGHT -> deliver_commit(KAFKA) :: true fi;
        if :: owner[MYSQL] == IN_FLIGHT -> deliver_commit(MYSQL) :: true fi;
        owner[KAFKA] = 0; owner[MYSQL] = 0;
        if
        :: sealed != NONE -> pending = NONE
#ifndef BUG_NO_FIRST_LOOK
        :: sealed == NONE && newest > 0 && overlapped[newest - 1] && !applied[newest - 1] -> pending = newest - 1
#endif
        :: sealed == NONE && newest > 0 && !commits[newest - 1] -> pending = newest - 1
        :: else -> pending = NONE
        fi;
        if :: pending != NONE -> redo(pending, KAFKA); redo(pending, MYSQL) :: else fi;
        number = 0;
        do
        :: number < EPOCHS ->
            assert(atomicity || !DECIDED(number) ||
                   (ROWS(KAFKA, number) == record[number] && ROWS(MYSQL, number) == record[number]));
            number++
        :: else -> break
        od
    }
}
