#!/bin/bash
# switch.sh [ROWS [SECONDS]]: how long writes wait while a table of 5,000,000 rows is copied and switched.
#
# Eight sessions of pgbench write 500 rows a second for 400 seconds, four by the simple protocol and four by prepared statements. Printed at the
# end: median, p99.9 and longest time of a write. It is the test copy_switch with other numbers, so it also looks for each write; it fails
# when p99.9 is 200 ms or more.
set -euo pipefail
cd "$(dirname "$0")/../.."
SWITCH_ROWS=${1:-5000000} SWITCH_SECONDS=${2:-400} PG_TEST_TIMEOUT_DEFAULT=900 TESTS=copy_switch test/bin/check tap
grep ' writes: median ' tmp_check/tap/copy_switch/output
