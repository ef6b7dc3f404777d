/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The flight recorder: the rings overwrite their oldest events, and when a
 * trigger has fired the last seconds are written as a capture: a whole stream
 * of its own, on stdout one behind the other, or (--directory) a file each.
 */
#ifndef FLASHSCOPE_FLIGHT_H
#define FLASHSCOPE_FLIGHT_H

#include <signal.h>

#include "recorder.h"

/* Of options: whether triggers were given. */
bool fs_flight(const struct fs_recorder *recorder);
/* Before arming: the directory and what it holds. 0, or -1 with the reason kept; *stop ends the wait for its file system. */
int fs_flight_check(struct fs_recorder *recorder, const volatile sig_atomic_t *stop);
/* Arms the triggers and prints how much memory everything takes. */
int fs_flight_begin(struct fs_recorder *recorder);
/* Ten times a second. 0: go on; 1: as many captures as were asked for; -1: a failure, reason kept. stop: no more names where not 0. */
int fs_flight_look(struct fs_recorder *recorder, const volatile int *stop);
/* At the end: a capture that was waiting for its last seconds is written now. */
int fs_flight_finish(struct fs_recorder *recorder, const volatile int *stop);
/* Member "trigger"; null where there is none. */
void fs_flight_json(struct fs_json *json, const struct fs_recorder *recorder);
/* 0, or -1 with errno. */
int fs_flight_end(struct fs_recorder *recorder);

#endif
