package launch

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
)

// Memory returns a value from the file /proc/PID/FILE in bytes, such as VmHWM from status or Pss from smaps_rollup.
// Memory returns 0 if the line does not exist.
func Memory(pid int, file, line string) int {
	// Ignore the error, because a process that has ended uses no memory.
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/%s", pid, file))
	_, after, _ := strings.Cut("\n"+string(text), "\n"+line+":")
	kB := 0
	_, _ = fmt.Sscan(after, &kB)
	return kB << 10
}

// CPUTime returns the CPU time of all threads of a process. The resolution is one Linux clock tick (10 ms). CPUTime
// returns 0 for an unknown process.
func CPUTime(pid int) time.Duration {
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	// Skip the program name, which may contain spaces.
	fields := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:]))
	if len(fields) < 13 {
		return 0
	}
	user, _ := strconv.Atoi(fields[11])
	system, _ := strconv.Atoi(fields[12])
	return time.Duration(user+system) * 10 * time.Millisecond
}

// OpenFiles returns the number of open file descriptors of a process. OpenFiles returns 0 for an unknown process.
func OpenFiles(pid int) int {
	open, _ := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
	return len(open)
}
