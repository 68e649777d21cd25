package attacks

import "slices"

// attack is a row of the table.
type attack struct {
	name    string
	what    string // is tried
	by      string // whom
	promise string // what holds; "" where nothing does
	tests   []of
}

// of are tests of a package.
type of struct {
	folder string
	tests  []string
}

func tests(folder string, names ...string) of { return of{folder, names} }

// The adversaries, in the order of what they have.
const (
	stranger = "stranger"        // reaches the network
	broker   = "broker"          // whoever runs it, or has taken it
	device   = "listed device"   // with a key that the coordinator knows
	neighbor = "neighbour"       // a listed device that mixes with others
	thief    = "thief of a key"  // of a device or the coordinator
	writer   = "writer of files" // in the state folder or on the way of a package
)

var attacks = slices.Concat(messages, devices, others)

// messages are what somebody says, or says again.
var messages = []attack{
	{"forged announcement", "an announcement with another key, or by a device",
		stranger + ", " + broker + ", " + device, "no agent obeys it; a closed broker drops it", []of{
			tests("agent", "TestHostileMessages"),
			tests("packaging/mosquitto", "TestAccessWithCertificates", "TestAccessWithPasswords"),
			tests("mqtt/broker", "TestAccessWithCertificates", "TestAccessWithPasswords")}},
	{"forged update", "an update in another device's name", stranger + ", " + device, "the model does not move", []of{
		tests("coordinator", "TestHostileMessages"),
		tests("packaging/mosquitto", "TestAccessWithCertificates", "TestCertificatesRefused"),
		tests("mqtt/broker", "TestCertificatesRefused")}},
	{"replay", "messages sent again, at once, later, after a restart, to another round or federation", broker,
		"each counts once, in its round", []of{
			tests("coordinator", "TestHostileMessages", "TestOldHellos"), tests("agent", "TestHostileMessages"),
			tests("wire", "TestDomainsAreSeparate")}},
	{"roll back", "old announcements and models, retained again", broker,
		"an agent obeys none that is older than the newest that it has obeyed, across restarts", []of{
			tests("agent", "TestOlderEpoch", "TestHostileMessages"), tests("coordinator", "TestOlderCopy")}},
	{"change a byte", "bits flipped, messages cut or made longer", broker, "each is dropped, and counted", []of{
		tests("wire", "TestEveryBitFlipFails", "TestEveryTruncationFails", "TestEveryTrailingByteFails"),
		tests("d2d", "TestTampering")}},
	{"rubbish and bombs", "packets and messages that claim to be huge, or are nothing",
		stranger + ", " + broker + ", " + device,
		"memory is bounded before anything is believed; no daemon ends", []of{
			tests("wire", "TestClaimsAllocateNothing", "TestClaimsAreRefused"),
			tests("mqtt", "TestR14EvilBroker", "TestR14LargestPacket", "TestR14OversizedMessages",
				"TestOversizedAllocatesNothing", "TestGuard"),
			tests("mqtt/broker", "TestHugeClaimBeforeConnectDisconnects", "TestOversizePacketDisconnects")}},
	{"wrong shape", "an update of another length, schema or base model", device, "it is refused with its reason",
		[]of{tests("coordinator", "TestHostileMessages")}},
}

// devices are what a listed device may do to the others.
var devices = []attack{
	{"not a number", "NaN, infinity, 3.4e38 or 1e30 in an update", device,
		"it is refused, or left out of the model; the device sits out", []of{
			tests("coordinator", "TestHostileMessages", "TestOneLiarOfSeven"),
			tests("coordinator/aggregation", "TestGuard"),
			tests("round", "TestSpoiledFoldSitsOut")}},
	{"anything, well signed", "any bytes as the body of any message, sealed and signed with a valid key",
		device + ", " + thief, "no crash; the others' round goes on, and what is announced next is obeyed", []of{
			tests("coordinator", "FuzzInsider"), tests("agent", "FuzzCoordinator"),
			tests("d2d", "FuzzNeighbor", "FuzzScout")}},
	{"poison", "updates backwards, ten times as long as honest ones or of their length", device,
		"with round.robust one of seven costs a few rounds more, without it accuracy and never the run; nothing is " +
			"promised for a fifth of liars or more", []of{
			tests("coordinator", "TestOneLiarOfSeven", "TestOneLiarOfSevenWithoutRobust"),
			tests("round", "TestBound", "TestLongAreTheLiars")}},
	{"steer Prometheus", "an address to be scraped that is another's", device,
		"as shipped Prometheus asks the coordinator alone; a report's address is host and port, or nothing", []of{
			tests("metrics", "TestTargets"), tests("lab/monitoring", "TestPrometheusIsNotSteered")}},
	{"a false beginning", "parameters for a neighbour that comes back in a block without an end", device,
		"it begins with the median of 3 neighbours or more, and else with its own", []of{
			tests("d2d", "TestBeginsWithTheMedian")}},
	{"lie to neighbours", "a constant, the sign changed or 1e30 where neighbours mix", device,
		"with task.mixing.clip no step moves a neighbour by more than w_ij τ, and edges that stand out are left out",
		[]of{
			tests("d2d", "TestClipIsTheSameAtBothEnds", "TestClippedMeanIsConserved", "TestSeen"),
			tests("round", "TestJudgedEdges", "TestAwaitsReports"),
			tests("lab/demo", "TestLyingNeighborDoesLittle")}},
	{"false weight", "a claim of a billion rows, where weights go by rows", device,
		"it is named; with round.robust it counts as five devices at most", []of{
			tests("coordinator", "TestOneLiarOfSeven")}},
	{"false statistics", "means and scales that are not of the device's rows", device,
		"one of five or more does not bend the standardisation", []of{
			tests("coordinator", "TestStatisticsOfOneLiar", "TestImpossibleStatistics"),
			tests("learner", "TestOneLiarIsOutvoted")}},
	{"false evaluation", "figures of a model on held-out rows that no model has, or that are not the device's", device,
		"what no rows come to is refused; what is over all rows is bent by as much as is lied, quantiles over agents " +
			"are not; nothing that is trained depends on it", []of{
			tests("wire", "TestEvaluationAddsUp"), tests("coordinator", "TestEvaluationOfOtherClasses"),
			tests("round/evaluation", "TestFits", "TestOrderAndBounds")}},
	{"silence", "drawn, and never an update; or gone", device,
		"the round closes at its quorum or deadline; the device is not drawn for longer and longer", []of{
			tests("coordinator", "TestVanishedAndLate", "TestGoneInTheMiddle"),
			tests("round", "TestSilentAgentSitsOut", "TestEndlessSilenceDoesNotStop",
				"TestSittingOutSurvivesARestart", "TestSilenceTakesLittleTime")}},
}

// others are what is tried at the broker, with keys, and with files.
var others = []attack{
	{"another's session", "the client id or the address of another device", stranger + ", " + device,
		"the broker refuses it; two devices with one identity are named", []of{
			tests("mqtt/broker", "TestAuthenticateWithCertificate"),
			tests("packaging/mosquitto", "TestCertificatesRefused"), tests("coordinator", "TestClones")}},
	{"connections", "all that the broker may have, held without a word", stranger, "devices still come in", []of{
		tests("packaging/mosquitto", "TestIdleConnections"), tests("internal/doctor", "TestFirewall"),
		tests("mqtt/broker", "TestSilentStrangers", "TestTooManyConnectionsFromOneAddress",
			"TestRefusalsAreToldInBrief")}},
	{"fill the broker", "retained messages or subscriptions without end", device,
		"bounded on the embedded broker; on Mosquitto by memory_limit, and what is foreign is deleted and named", []of{
			tests("mqtt/broker", "TestQuota", "TestQuotaOfWills", "TestSubscriptionsAreBounded"),
			tests("coordinator", "TestForeignRetained"), tests("internal/doctor", "TestMemory"),
			tests("packaging/mosquitto", "TestBoundsAndPersistence")}},
	{"flood the coordinator", "messages and updates faster than it works", device + ", " + broker,
		"mailbox and memory are bounded; the oldest of what can be had again is dropped, and counted", []of{
			tests("mqtt", "TestR1FloodIsBounded", "TestFlappingLinkStaysBounded"),
			tests("coordinator", "TestUpdatesWaitForRoom", "TestTransfersAreBounded"),
			tests("coordinator/devices", "TestRejectionsAreBounded")}},
	{"cut the network", "messages lost, delayed, in another order; one side cut off", broker,
		"nothing accepted is lost; rounds go on when the network does", []of{
			tests("coordinator", "TestBrokerCut", "TestLoss", "TestAcceptanceLostWithTheLink", "TestForgetfulBroker")}},
	{"read at the broker", "all that goes through it in a run, or that it retains", broker + ", " + stranger,
		"sizes, times and names: no parameter, moment, risk or count of rows; no key in a log, event or metric", []of{
			tests("coordinator", "TestBrokerLearnsNothing", "TestRepublishedSealed"),
			tests("agent", "TestUpdateIsSealed"),
			tests("wire", "TestSealedMessages", "TestSealedBlobs", "TestSealedManifests"),
			tests("lab/world", "TestPowerCutAtEachOperation")}},
	{"seal again", "sealed messages, chunks and models in another place, under another name or key, or in the open",
		broker + ", " + device,
		"each opens where it was sealed for, or is dropped and counted; unsealed messages are dropped, too", []of{
			tests("wire", "TestSealedInPlace", "TestSealPair", "TestSealedInAnnouncement"),
			tests("mqtt/transfer", "TestPullerOpensSeals", "TestPullerRefusesAnotherManifest",
				"TestReceiverOpensSeals"),
			tests("agent", "TestKeyOfTheGroup", "TestUnsealedMessages", "TestAnnouncementWithoutKey")}},
	{"read on after the revocation", "a device that was revoked listens at the broker, and asks for the key", thief,
		"it opens nothing that was announced later, whenever the coordinator is killed; another root document and " +
			"1,000 rounds bring another key, too", []of{
			tests("coordinator", "TestRevokedOpensNothing", "TestRevokedAndKilled"),
			tests("coordinator/sealing", "TestKeyChanges", "TestKeyChangeCut")}},
	{"read between neighbours", "the D2D topics", broker + ", " + device, "sealed for the neighbour alone", []of{
		tests("d2d", "TestSealed", "TestOtherBlocks", "TestPartsOfAnotherStart")}},
	{"speak as a neighbour",
		"snapshots in another neighbour's name, sealed with its key; beacons of others, replayed or forged",
		device + ", " + broker + ", " + stranger, "each proves whose it is, or is dropped", []of{
			tests("d2d", "TestNeighborSpeaksForNobodyElse", "TestTampering", "TestScoutTakesSigned"),
			tests("agent", "TestWord", "TestWordOfAnotherRoot"), tests("coordinator", "TestDiscoveredEdges")}},
	{"a neighbour without an edge", "snapshots from a device that the invitation does not name", device,
		"ignored", []of{
			tests("d2d", "TestIgnored", "TestForbidden")}},
	{"a lost device", "its key and certificate in other hands", thief,
		"one command: its next message is dropped, it is told, its session is ended, the broker gets other rules",
		[]of{
			tests("coordinator", "TestRevoked", "TestRevokedIsTold", "TestRevokedWhileStopped"),
			tests("internal/e2e", "TestJoin"),
			tests("packaging/mosquitto", "TestRevokedCertificate", "TestReloadedRules")}},
	{"another key for a device", "a request for a key or certificate by a stranger, by a key before, replayed, " +
		"without the certificate's key, of a revoked device", stranger + ", " + device + ", " + thief,
		"no answer, or a refusal; the list stays; the key before is heard no more", []of{
			tests("coordinator", "TestRenewalsAreChecked"), tests("wire", "TestVouched", "TestHalfARequest"),
			tests("internal/coordinatord", "TestRenewRefused", "TestRenewRevoked", "TestKeyRotates"),
			tests("agent", "TestForeignCertificates")}},
	{"an old certificate of the broker", "one that has ended, shown to a device whose clock begins in 1970",
		stranger + ", " + broker, "refused, by the time that the coordinator signed last, or the program was built; " +
			"a thief's time ends with the next root document", []of{
			tests("agent", "TestClockFloor", "TestClockOfThief"), tests("internal/agentd", "TestDeviceOf1970")}},
	{"a second coordinator", "with the key and a copy of the state folder", thief,
		"the one that is behind stops and says so; it leads again only by a raised epoch", []of{
			tests("coordinator", "TestTwoCoordinators", "TestForeignAnnouncement", "TestForeignAnnouncementLeads"),
			tests("agent", "TestOlderEpoch")}},
	{"join without a token", "guessed, used, expired or another device's tokens; a man in the middle", stranger,
		"refused; five wrong tries a minute and source; the device pins the root before it tells its token", []of{
			tests("coordinator/enrol", "TestJoinRefused", "TestTokenRefused", "TestTries", "TestTriesAreBounded",
				"TestUsedTokenStaysUsed"),
			tests("internal/join", "TestManInTheMiddle", "TestOldRoot")}},
	{"weak keys", "one key under two names, points of small order, key files that others can read",
		device + ", " + writer, "refused, or said", []of{
			tests("internal/keys", "TestWeakKeys", "TestPrivateIsClosed"),
			tests("internal/coordinatord/agentlist", "TestAgents"),
			tests("coordinator", "TestWeakPeerKey"), tests("wire", "TestWeakPeerKeys")}},
	{"rewrite the past", "the log of who changed what, edited or cut", writer,
		"`coordinator audit verify` finds it, up to the end of the last round", []of{
			tests("coordinator/audit", "TestTampered", "TestAnotherKey"), tests("internal/e2e", "TestJoin")}},
	{"damaged or foreign files", "the state folder's files changed, cut or of an earlier copy", writer,
		"the program rebuilds derived files; for other files it stops with an error that names the remedy", []of{
			tests("coordinator", "TestDamagedFolder", "TestForeignBackup"),
			tests("coordinator/uploads", "TestUpdateChangedOnDisk"),
			tests("agent/fetch", "TestReadChecksAFile")}},
	{"another package", "packages and lists of the repository that were changed", writer,
		"apt refuses them: they are signed", []of{tests("internal/testkit/machine", "TestRepository")}},
	{"a flood of labels", "names and numbers that would fill Prometheus", device,
		"series are bounded whatever devices tell", []of{
			tests("metrics", "TestInputsAreBounded", "TestSeriesDoNotGrowWithTheFleet", "TestSetsAreClosed")}},
}
