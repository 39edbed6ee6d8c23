/* Row (h) of a build without an S3 server to measure against (tests/fakes/s3_process.h). */
#include "rows.h"

void row_s3(void)
{
    table_skip(bench.table, "h", "this build has no s3:// store");
}
