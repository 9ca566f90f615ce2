package sqlite_test

// mostCost is what the lots of each workload that are counted cost at most: the statements, pages
// and steps of all of them, and the allocations of the lot with the fewest. TestCosts fails if a
// count is 3 % larger, and if it is 3 % smaller until that is written here; it logs each line as it
// has to be. Whoever changes a number says why in the message of that commit: what users get for a
// larger one, or what has become cheaper.
var mostCost = map[string]cost{
	"drain":            {90, 182, 301470, 2149},
	"kept":             {100, 327, 463240, 2157},
	"failing":          {13070, 728, 1844020, 17203},
	"enqueue-1":        {7736, 5581, 216680, 6684},
	"enqueue-64":       {71, 110, 40635, 752},
	"enqueue-64-keys":  {1352, 166, 78550, 1975},
	"enqueue-64-evict": {4005, 200, 143755, 8922},
	"enqueue-batch":    {150, 311, 311790, 3203},
	"enqueue-tx":       {3210, 2025, 87430, 3268},
	"mixed":            {122, 138, 60840, 698},
	"drain-keys":       {5190, 285, 403529, 5469},
	"groups":           {270, 425, 481650, 2256},
	"groups-each":      {240, 543, 1245300, 6462},
	"groups-1":         {7053, 4638, 386625, 8940},
	"lanes":            {1440, 898, 749580, 8153},
	"held":             {90, 207, 301470, 2152},
	"behind":           {90, 196, 301480, 2153},
}
