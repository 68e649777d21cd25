package round_test
import ("testing";"os";"strconv")
func TestStress(t *testing.T){
 from,_:=strconv.Atoi(os.Getenv("FROM")); to,_:=strconv.Atoi(os.Getenv("TO"))
 bad:=0
 for s:=from;s<to;s++{ w:=liveThrough(uint64(s)); if len(w.problems)>0 { bad++; t.Errorf("seed %d at %s: %v cfg %+v trouble %+v",s,w.since(),w.problems,w.cfg,w.trouble); if bad>8 {return} } }
}
