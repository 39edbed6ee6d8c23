/* (h) An agent's load from S3 against curl's of the same objects to the same disk. */
#include "rows.h"

void row_s3(void)
{
    table_skip(bench.table, "h", "this build has no s3:// store");
}
