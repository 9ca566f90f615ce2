package sqlite_test

// mostCost is what the lots of each workload that are counted cost at most: the statements, pages
// and steps of all of them, and the allocations of the lot with the fewest. TestCosts fails if a
// count is 3 % larger, and if it is 3 % smaller until that is written here; it logs each line as it
// has to be. Whoever changes a number says why in the message of that commit: what users get for a
// larger one, or what has become cheaper.
var mostCost = map[string]cost{
	"drain":            {90, 182, 301470, 2149},
	"kept":             {100, 327, 463240, 2157},
	"failing":          {20710, 789, 1940500, 21023},
	"enqueue-1":        {10262, 8101, 476270, 7448},
	"enqueue-64":       {81, 120, 41665, 755},
	"enqueue-64-keys":  {1362, 176, 79580, 2303},
	"enqueue-64-evict": {4005, 200, 143755, 8922},
	"enqueue-batch":    {150, 311, 311790, 3203},
	"enqueue-tx":       {3840, 2655, 137600, 3328},
	"mixed":            {142, 148, 62370, 705},
	"drain-keys":       {7740, 285, 428919, 7256},
	"groups":           {5290, 448, 548830, 6070},
	"groups-each":      {20620, 647, 1355080, 21750},
	"groups-1":         {7694, 4638, 384710, 11148},
	"lanes":            {1440, 898, 749580, 8153},
	"held":             {90, 207, 301470, 2152},
	"behind":           {90, 196, 301480, 2153},
}
