package attacks

import "slices"

// attack is one row of the table of attacks.
type attack struct {
	name    string
	what    string // action of the attacker
	by      string // kind of attacker
	promise string // security property that holds despite the attack; "" if there is none
	tests   []of
}

// of is a list of test names in the folder of one package.
type of struct {
	folder string
	tests  []string
}

func tests(folder string, names ...string) of { return of{folder, names} }

// Kinds of attackers, ordered by increasing capabilities.
const (
	stranger = "stranger"        // can reach the network
	broker   = "broker"          // operates the broker or controls it
	device   = "listed device"   // has a key that the coordinator accepts
	neighbor = "neighbour"       // a listed device that mixes with others
	thief    = "thief of a key"  // has the key of a device or of the coordinator
	writer   = "writer of files" // can write in the state folder or replace a package
)

var attacks = slices.Concat(messages, devices, others)

// messages lists attacks with forged, replayed or malformed messages.
var messages = []attack{
	{"forged announcement", "an announcement signed with another key, or sent by a device",
		stranger + ", " + broker + ", " + device, "no agent accepts it; a broker with access rules drops it", []of{
			tests("agent", "TestHostileMessages"),
			tests("packaging/mosquitto", "TestAccessWithCertificates", "TestAccessWithPasswords"),
			tests("mqtt/broker", "TestAccessWithCertificates", "TestAccessWithPasswords")}},
	{"forged update", "an update sent in another device's name", stranger + ", " + device, "the model does not change",
		[]of{
			tests("coordinator", "TestHostileMessages"),
			tests("packaging/mosquitto", "TestAccessWithCertificates", "TestCertificatesRefused"),
			tests("mqtt/broker", "TestCertificatesRefused")}},
	{"replay", "messages sent again: at once, later, after a restart, or to another round or federation", broker,
		"each message is used once, in its own round", []of{
			tests("coordinator", "TestHostileMessages", "TestOldHellos"), tests("agent", "TestHostileMessages"),
			tests("wire", "TestDomainsAreSeparate")}},
	{"rollback", "old announcements and models, retained again", broker,
		"an agent ignores announcements older than the newest accepted one, also after a restart", []of{
			tests("agent", "TestOlderEpoch", "TestHostileMessages"), tests("coordinator", "TestOlderCopy")}},
	{"changed bytes", "messages with flipped bits, truncated or extended", broker,
		"each message is dropped and counted",
		[]of{
			tests("wire", "TestEveryBitFlipFails", "TestEveryTruncationFails", "TestEveryTrailingByteFails"),
			tests("d2d", "TestTampering")}},
	{"invalid and oversized data", "invalid packets and messages, and packets that claim a huge size",
		stranger + ", " + broker + ", " + device,
		"sizes are checked before memory is allocated; no daemon exits", []of{
			tests("wire", "TestClaimsAllocateNothing", "TestClaimsAreRefused"),
			tests("mqtt", "TestR14EvilBroker", "TestR14LargestPacket", "TestR14OversizedMessages",
				"TestOversizedAllocatesNothing", "TestGuard"),
			tests("mqtt/broker", "TestHugeClaimBeforeConnectDisconnects", "TestOversizePacketDisconnects")}},
	{"wrong shape", "an update with another length, schema or base model", device, "it is refused with a reason",
		[]of{tests("coordinator", "TestHostileMessages")}},
}

// devices lists attacks of an enrolled device on other devices.
var devices = []attack{
	{"not a number", "NaN, infinity, 3.4e38 or 1e30 in an update", device,
		"it is refused or excluded from the model; the device is not drawn for a while", []of{
			tests("coordinator", "TestHostileMessages", "TestOneLiarOfSeven"),
			tests("coordinator/aggregation", "TestGuard"),
			tests("round", "TestSpoiledFoldSitsOut")}},
	{"arbitrary signed content", "arbitrary bytes as the body of any message, sealed and signed with a valid key",
		device + ", " + thief,
		"no crash; the round of the other devices continues, and they accept the next announcement",
		[]of{
			tests("coordinator", "FuzzInsider"), tests("agent", "FuzzCoordinator"),
			tests("d2d", "FuzzNeighbor", "FuzzScout")}},
	{"poisoned updates", "updates with the opposite sign, of the usual or ten times the usual length", device,
		"one attacker of seven costs a few more rounds with round.robust, or accuracy without it, but never the run; " +
			"no promise for a fifth of attackers or more", []of{
			tests("coordinator", "TestOneLiarOfSeven", "TestOneLiarOfSevenWithoutRobust"),
			tests("round", "TestBound", "TestLongAreTheLiars")}},
	{"redirected Prometheus", "another host's address as the scrape address of the device", device,
		"the shipped configuration scrapes only the coordinator; other addresses than host and port are ignored", []of{
			tests("metrics", "TestTargets"), tests("lab/monitoring", "TestPrometheusIsNotSteered")}},
	{"false initial parameters", "parameters for a neighbour that returns to an endless mixing block", device,
		"the neighbour starts with the median of at least 3 neighbours, or with its own parameters", []of{
			tests("d2d", "TestBeginsWithTheMedian")}},
	{"false snapshots", "snapshots with a constant, the opposite sign or 1e30", device,
		"with task.mixing.clip a step changes a neighbour by at most w_ij τ, and conspicuous edges are suspended",
		[]of{
			tests("d2d", "TestClipIsTheSameAtBothEnds", "TestClippedMeanIsConserved", "TestSeen"),
			tests("round", "TestJudgedEdges", "TestAwaitsReports"),
			tests("lab/demo", "TestLyingNeighborDoesLittle")}},
	{"false weight", "a claim of a billion rows with weights by number of rows", device,
		"the claim is reported; with round.robust the device weighs at most as much as five devices", []of{
			tests("coordinator", "TestOneLiarOfSeven")}},
	{"false statistics", "means and deviations that do not match the device's rows", device,
		"one attacker among at least five devices does not distort the standardisation", []of{
			tests("coordinator", "TestStatisticsOfOneLiar", "TestImpossibleStatistics"),
			tests("learner", "TestOneLiarIsOutvoted")}},
	{"false evaluation", "impossible or invented results of a model on the held-out rows", device,
		"impossible results are refused; an invented result shifts the totals, but not the quantiles over agents; " +
			"training is not affected", []of{
			tests("wire", "TestEvaluationAddsUp"), tests("coordinator", "TestEvaluationOfOtherClasses"),
			tests("round/evaluation", "TestFits", "TestOrderAndBounds")}},
	{"silence", "a participant sends no update, or disappears", device,
		"the round closes by its quorum or deadline; the device is excluded from draws for increasing periods", []of{
			tests("coordinator", "TestVanishedAndLate", "TestGoneInTheMiddle"),
			tests("round", "TestSilentAgentSitsOut", "TestEndlessSilenceDoesNotStop",
				"TestSittingOutSurvivesARestart", "TestSilenceTakesLittleTime")}},
}

// others lists attacks on the broker, with stolen keys, and on files.
var others = []attack{
	{"session takeover", "the client id or the address of another device", stranger + ", " + device,
		"the broker refuses it; two devices with one identity are reported", []of{
			tests("mqtt/broker", "TestAuthenticateWithCertificate"),
			tests("packaging/mosquitto", "TestCertificatesRefused"), tests("coordinator", "TestClones")}},
	{"connection exhaustion", "all allowed connections of the broker are opened and left idle", stranger,
		"devices can still connect", []of{
			tests("packaging/mosquitto", "TestIdleConnections"), tests("internal/doctor", "TestFirewall"),
			tests("mqtt/broker", "TestSilentStrangers", "TestTooManyConnectionsFromOneAddress",
				"TestRefusalsAreToldInBrief")}},
	{"full broker", "unlimited retained messages or subscriptions", device,
		"the embedded broker limits both; Mosquitto has memory_limit, and foreign messages are deleted and reported",
		[]of{
			tests("mqtt/broker", "TestQuota", "TestQuotaOfWills", "TestSubscriptionsAreBounded"),
			tests("coordinator", "TestForeignRetained"), tests("internal/doctor", "TestMemory"),
			tests("packaging/mosquitto", "TestBoundsAndPersistence")}},
	{"flooded coordinator", "messages and updates faster than the coordinator processes them", device + ", " + broker,
		"mailbox and memory are bounded; the oldest repeatable messages are dropped and counted", []of{
			tests("mqtt", "TestR1FloodIsBounded", "TestFlappingLinkStaysBounded"),
			tests("coordinator", "TestUpdatesWaitForRoom", "TestTransfersAreBounded"),
			tests("coordinator/devices", "TestRejectionsAreBounded")}},
	{"network failures", "messages lost, delayed or reordered; one side disconnected", broker,
		"no accepted update is lost; rounds continue with the network", []of{
			tests("coordinator", "TestBrokerCut", "TestLoss", "TestAcceptanceLostWithTheLink", "TestForgetfulBroker")}},
	{"reading at the broker", "all messages of a run, and all retained messages", broker + ", " + stranger,
		"only sizes, times and names are visible: no parameters, statistics, risks or row counts; logs, events and " +
			"metrics contain no keys", []of{
			tests("coordinator", "TestBrokerLearnsNothing", "TestRepublishedSealed"),
			tests("agent", "TestUpdateIsSealed"),
			tests("wire", "TestSealedMessages", "TestSealedBlobs", "TestSealedManifests"),
			tests("lab/world", "TestPowerCutAtEachOperation")}},
	{"reused seals", "sealed messages, chunks and models under another topic, name or key, or unsealed ones",
		broker + ", " + device,
		"each message opens only for its recipient and topic; all others, also unsealed ones, are dropped and counted",
		[]of{
			tests("wire", "TestSealedInPlace", "TestSealPair", "TestSealedInAnnouncement"),
			tests("mqtt/transfer", "TestPullerOpensSeals", "TestPullerRefusesAnotherManifest",
				"TestReceiverOpensSeals"),
			tests("agent", "TestKeyOfTheGroup", "TestUnsealedMessages", "TestAnnouncementWithoutKey")}},
	{"reading after the revocation", "a revoked device listens at the broker and requests the key", thief,
		"it cannot open later announcements, even if the coordinator is killed at any moment; the key also changes " +
			"with each root document and after 1,000 rounds", []of{
			tests("coordinator", "TestRevokedOpensNothing", "TestRevokedAndKilled"),
			tests("coordinator/sealing", "TestKeyChanges", "TestKeyChangeCut")}},
	{"reading between neighbours", "the topics of the messages between neighbours", broker + ", " + device,
		"messages are sealed for the neighbour only", []of{
			tests("d2d", "TestSealed", "TestOtherBlocks", "TestPartsOfAnotherStart")}},
	{"false neighbour",
		"snapshots in another neighbour's name, sealed with its key; replayed or forged beacons of other devices",
		device + ", " + broker + ", " + stranger, "messages without proof of their sender are dropped", []of{
			tests("d2d", "TestNeighborSpeaksForNobodyElse", "TestTampering", "TestScoutTakesSigned"),
			tests("agent", "TestWord", "TestWordOfAnotherRoot"), tests("coordinator", "TestDiscoveredEdges")}},
	{"neighbour without an edge", "snapshots from a device that is not in the invitation", device,
		"they are ignored", []of{
			tests("d2d", "TestIgnored", "TestForbidden")}},
	{"lost device", "the key and certificate of a device are stolen", thief,
		"one command revokes it: its messages are dropped, it is notified, its session is closed, and the broker's " +
			"rules are updated",
		[]of{
			tests("coordinator", "TestRevoked", "TestRevokedIsTold", "TestRevokedWhileStopped"),
			tests("internal/e2e", "TestJoin"),
			tests("packaging/mosquitto", "TestRevokedCertificate", "TestReloadedRules")}},
	{"new key for a device", "a request for a key or certificate by a stranger, with a replaced key, replayed, " +
		"without the certificate's key, or for a revoked device", stranger + ", " + device + ", " + thief,
		"no answer or a refusal; the list of agents is unchanged; messages with a replaced key are ignored", []of{
			tests("coordinator", "TestRenewalsAreChecked"), tests("wire", "TestVouched", "TestHalfARequest"),
			tests("internal/coordinatord", "TestRenewRefused", "TestRenewRevoked", "TestKeyRotates"),
			tests("agent", "TestForeignCertificates")}},
	{"expired broker certificate", "an expired certificate, presented to a device whose clock starts in 1970",
		stranger + ", " + broker, "it is refused: the clock is at least the last time signed by the coordinator, or " +
			"the build time; a time signed with a stolen key is valid until the next root document", []of{
			tests("agent", "TestClockFloor", "TestClockOfThief"), tests("internal/agentd", "TestDeviceOf1970")}},
	{"second coordinator", "a coordinator with the key and a copy of the state folder", thief,
		"the coordinator with the older state stops and reports it; it can lead again only with a raised epoch", []of{
			tests("coordinator", "TestTwoCoordinators", "TestForeignAnnouncement", "TestForeignAnnouncementLeads"),
			tests("agent", "TestOlderEpoch")}},
	{"joining without a token", "guessed, used, expired or foreign tokens; a man in the middle", stranger,
		"the request is refused; five wrong attempts per minute and source; the device verifies the root document " +
			"before it sends its token", []of{
			tests("coordinator/enrol", "TestJoinRefused", "TestTokenRefused", "TestTries",
				"TestUsedTokenStaysUsed"), tests("host", "TestAttemptsAreBounded"),
			tests("internal/join", "TestManInTheMiddle", "TestOldRoot")}},
	{"weak keys", "one key under two names, points of small order, key files readable by other users",
		device + ", " + writer, "they are refused or reported", []of{
			tests("internal/keys", "TestWeakKeys", "TestPrivateIsClosed"),
			tests("internal/coordinatord/agentlist", "TestAgents"),
			tests("coordinator", "TestWeakPeerKey"), tests("wire", "TestWeakPeerKeys")}},
	{"page of another site", "requests from a page of another site in the browser of an operator, also by a host " +
		"name that resolves to the coordinator", stranger, "they are rejected; session cookies are not sent to " +
		"other sites",
		[]of{tests("internal/console", "TestCrossSite", "TestSession", "TestAccess")}},
	{"framed console", "the console in a frame of another page, and inline scripts", stranger,
		"the browser refuses both, because each response forbids them", []of{tests("internal/console", "TestHeaders")}},
	{"script in a name", "HTML and scripts in the name of a task or a column, and in a reason", device,
		"the console shows them as text", []of{tests("tools/console", "TestHostileTexts")}},
	{"guessed token of the console", "guesses in the login form and in the header of requests", stranger,
		"five wrong tokens per minute and source; a session ends when its token is removed", []of{
			tests("internal/console", "TestTokenGuessing", "TestSession"), tests("host", "TestAttemptsAreBounded")}},
	{"exhausted console", "many open pages, pages that do not read, and a huge history", stranger,
		"at most 64 pages; a page that does not read is disconnected; charts read a sample of the history", []of{
			tests("internal/console", "TestPagesAreBounded", "TestSlowReader", "TestDeletedRowsAreBounded"),
			tests("coordinator/runs", "TestSampleHistory")}},
	{"changed audit log", "the audit log, edited or truncated", writer,
		"`coordinator audit verify` detects it, up to the end of the last round", []of{
			tests("coordinator/audit", "TestTampered", "TestAnotherKey"), tests("internal/e2e", "TestJoin")}},
	{"damaged or foreign files", "files of the state folder, changed, truncated or from an earlier copy", writer,
		"the program rebuilds derived files; for other files it stops with an error that names the remedy", []of{
			tests("coordinator", "TestDamagedFolder", "TestForeignBackup"),
			tests("coordinator/uploads", "TestUpdateChangedOnDisk"),
			tests("agent/fetch", "TestReadChecksAFile")}},
	{"changed package", "changed packages and lists of the repository", writer,
		"apt refuses them, because they are signed", []of{tests("internal/testkit/machine", "TestRepository")}},
	{"label explosion", "many different names and numbers in metrics", device,
		"the number of series is bounded", []of{
			tests("metrics", "TestInputsAreBounded", "TestSeriesDoNotGrowWithTheFleet", "TestSetsAreClosed")}},
}
